"""The grammar of the language, ``tc.lark``: data, shipped as the package ``tcdsl.grammar``."""
