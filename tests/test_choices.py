"""Choices: what a compilation decided, as data, and the same asked for again."""

import json
import re
from typing import Any

import pytest

import tcdsl
from tcdsl.errors import OptionError
from tcdsl.executable.emulated import EmulatedExecutable
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options

SOFTMAX = """def softmax(float(M,N) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""
TWICE = {"kernel": "S0", "template": "row"}
MATMUL = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
X = tcdsl.spec((8192, 4096), "float32")


def softmax() -> Any:
    return tcdsl.define(SOFTMAX).softmax


def config_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of *entry*'s template."""
    return {k: v for k, v in entry.items() if k not in ("kernel", "template", "code")}


def changed(choices: dict[str, Any], **entry: Any) -> dict[str, Any]:
    """Return *choices* with other values in the entry of the first kernel."""
    found: dict[str, Any] = json.loads(json.dumps(choices))
    found["kernels"][0].update(entry)
    return found


@pytest.mark.slow_but("softmax-cpu", "softmax-emulate")
@pytest.mark.parametrize("target", ["emulate", "cpu"])
@pytest.mark.parametrize(
    ("source", "specs"),
    [
        (SOFTMAX, [X]),
        (MATMUL, [tcdsl.spec((300, 301), "float32"), tcdsl.spec((301, 302), "float32")]),
    ],
    ids=["softmax", "matmul"],
)
def test_the_same_choices_make_the_same_kernels(target: str, source: str, specs: list[Any]) -> None:
    (f,) = tcdsl.define(source)
    exe = tcdsl.define(source)[f].compile(*specs, target=target)
    text = json.dumps(exe.choices)
    again = tcdsl.define(source)[f].compile(*specs, target=target, choices=json.loads(text))
    assert again.source == exe.source and again.choices == exe.choices
    assert tcdsl.define(source)[f].compile(*specs, target=target, choices=text).source == exe.source


def test_other_choices_make_other_kernels() -> None:
    exe = softmax().compile(X, target="emulate")
    other = softmax().compile(
        X, target="emulate", choices=changed(exe.choices, threads=128, keep=8)
    )
    assert other.choices["kernels"][0]["threads"] == 128
    assert other.kernels[0]["block"][0] == 128 != exe.kernels[0]["block"][0]


def test_candidates_have_times_or_reasons() -> None:
    exe = softmax().compile(X, target="emulate")
    assert len(exe.candidates) > 10
    (chosen,) = [c for c in exe.candidates if c.get("is_chosen")]
    own = config_of(exe.choices["kernels"][0])
    assert chosen["config"] == own and chosen["template"] == "row"
    for candidate in exe.candidates:
        assert candidate["kernel"] == exe.choices["kernels"][0]["kernel"]
        if "why_not" in candidate:
            assert candidate["why_not"]
        else:
            assert candidate["predicted_us"] > 60 and candidate["limiter"]  # 268 MB
    json.dumps(exe.candidates)


BOTH = "def f(float(M,N) x) -> (a, b) { a(i) +=! x(i,j)\n b(j) +=! x(i,j) where i in 0:M }"


def test_explain_says_what_was_chosen_and_from_what() -> None:
    exe = softmax().compile(X, target="emulate")
    lines = exe.explain().split("\n\n")[0].splitlines()
    shown = [line.strip() for line in lines[lines.index("choices") + 1 :]]
    assert shown[0] == "S0+S1+S2_row0+S2: 30 weighed"
    own = config_of(exe.choices["kernels"][0])
    assert shown[1].startswith("chosen ") and f"row: threads {own['threads']}" in shown[1]
    assert [line.split()[0] for line in shown[1:6]] == ["chosen", "or", "or", "or", "or"]
    times = [float(line.split()[1]) for line in shown[1:5]]
    weighed = [c for c in exe.candidates if "code_change" not in c]
    others = sorted(c["predicted_us"] for c in weighed if c.get("is_chosen") is False)
    assert times[1:] == pytest.approx(others[:3], abs=0.06)
    assert "memory" in shown[1] and "26 more" in shown[5]
    refused = {c["template"] for c in exe.candidates if "config" not in c}
    named = [line[4:].partition(":")[0].split(", ") for line in shown[6:]]
    assert {name for names in named for name in names} == refused


THREE = """def f(float(M,N) x) -> (a, b, y) {
    a(i) +=! x(i,j)
    b(j) +=! x(i,j)
    y(i,j) = x(i,j) * b(j)
}"""


def test_explain_says_why_kernels_are_two() -> None:
    text = tcdsl.define(THREE).f.compile(X, target="emulate").explain()
    assert re.search(r"^  separate  S0\+S1 \| S2: one kernel would take", text, re.M)
    none = tcdsl.define(SOFTMAX).softmax.compile(
        tcdsl.spec((64, 64), "float32"), target="cpu", options=Options(fuse="none")
    )
    assert "  separate  S0 | S1, S1 | S2: fusion is off" in none.explain()


def test_no_candidate_is_told_twice() -> None:
    exe = tcdsl.define(BOTH).f.compile(X, target="emulate")
    configs = [json.dumps(c) for c in exe.candidates if "config" in c]
    assert len(configs) == len(set(configs))


def test_reasons_that_all_kernels_share_are_told_once() -> None:
    exe = tcdsl.define(BOTH).f.compile(X, target="emulate")
    assert len(exe.choices["kernels"]) > 1
    assert exe.explain().count("not ragged_long") == 1


def test_choices_of_code_from_the_cache_need_no_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    first = softmax().compile(X, target="emulate")

    def fail(*_: object) -> None:
        raise AssertionError("planned again")

    again = softmax().compile(X, target="emulate")
    assert again is not first and again.explain() == first.explain()
    assert again.candidates == first.candidates
    monkeypatch.setattr(EmulatedExecutable, "_compiled_again", fail)
    third = softmax().compile(X, target="emulate")
    assert third.choices == first.choices and third.source == first.source


def test_what_fails_in_listing_candidates_loses_only_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("tcdsl.strategies.choices.candidates", fail)
    monkeypatch.delenv("TCDSL_DEBUG", raising=False)
    with pytest.warns(UserWarning, match="'softmax' is lost: planted"):
        exe = softmax().compile(tcdsl.spec((256, 96), "float32"), target="emulate")
        assert exe.candidates == [] and "template row" in exe.explain()
    assert exe.choices["kernels"][0]["template"] == "row"


# --- templates of other origin than a problem's axes --------------------------------------------

ALL = "def f(float(N) x) -> (y) { y +=! x(i) }"


def entry_of(choices: dict[str, Any], template: str) -> dict[str, Any]:
    """Return the entry of the kernel by *template*."""
    (found,) = (one for one in choices["kernels"] if one["template"] == template)
    return dict(found)


@pytest.mark.slow_but(
    "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }-specs1-isl_band-64"
)
@pytest.mark.slow_but(
    "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }-specs1-isl_band-64"
)
@pytest.mark.parametrize(
    ("source", "specs", "template", "threads"),
    [
        (ALL, [tcdsl.spec((1 << 22,), "float32")], "last_block", 1),
        (MATMUL, [tcdsl.spec((300, 301), "float32"), tcdsl.spec((301, 302), "float32")],
         "isl_band", 64),
    ],
)  # fmt: skip
def test_last_blocks_and_bands_of_isl_are_chosen_like_others(
    source: str, specs: list[Any], template: str, threads: int
) -> None:
    (name,) = tcdsl.define(source)
    options = Options(scheduler="isl" if template == "isl_band" else "auto")

    def compiled(choices: Any = None) -> Any:
        f = tcdsl.define(source)[name]
        return f.compile(*specs, target="emulate", options=options, choices=choices)

    exe = compiled()
    own = entry_of(exe.choices, template)
    weighed = [c for c in exe.candidates if c["template"] == template and "config" in c]
    assert [c["config"]["threads"] for c in weighed if c["is_chosen"]] == [own["threads"]]
    assert all(c["predicted_us"] > 0 for c in weighed)
    again = compiled(exe.choices)
    assert again.source == exe.source and again.choices == exe.choices
    other = compiled({**exe.choices, "kernels": [{**own, "threads": threads}]})
    assert entry_of(other.choices, template)["threads"] == threads
    assert other.source != exe.source
    with pytest.raises(OptionError, match="threads=7 is none of"):
        compiled({**exe.choices, "kernels": [{**own, "threads": 7}]})


# --- codegen's own choices ---------------------------------------------------------------------

ROWS = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
CHANGED = {  # another value, and what the text has with one of both
    "resident_blocks": (SOFTMAX, 2, "__launch_bounds__(512, 2)"),
    "streaming": (ROWS, False, "_once<"),
    "unrolled_bytes": (ALL, 32, "#pragma unroll 2"),
    "sum_terms": (ALL, 8, "w_turn0 < 8;"),
    "is_reversed": (ROWS, True, "(gridDim.x - 1 - blockIdx.x)"),
}


@pytest.mark.parametrize("key", CHANGED)
def test_code_is_chosen_like_loops(key: str) -> None:
    source, value, text = CHANGED[key]
    (name,) = tcdsl.define(source)
    spec = tcdsl.spec((1 << 26,), "float32") if source == ALL else X
    exe = tcdsl.define(source)[name].compile(spec, target="emulate")
    own = exe.choices["kernels"][0]
    assert own["code"][key] != value
    forced = changed(exe.choices, code={**own["code"], key: value})
    other = tcdsl.define(source)[name].compile(spec, target="emulate", choices=forced)
    assert other.choices["kernels"][0]["code"][key] == value
    assert (text in exe.source) != (text in other.source)
    (chosen,) = (c for c in other.candidates if c.get("is_chosen") and key in c.get("code", {}))
    assert chosen["code"] == {**own["code"], key: value}
    changes = [
        c["code_change"]
        for c in exe.candidates
        if c["kernel"] == own["kernel"] and key in c.get("code_change", {})
    ]
    assert {key: value} in changes and {key: own["code"][key]} not in changes
    back = [c["code_change"] for c in other.candidates if "code_change" in c]
    assert {key: own["code"][key]} in back and {key: value} not in back


RAGGED = """def f(int32(P) ptr, int32(E) word, float(V,D) x) -> (y) {
    y(b,d) +=! x(word(e),d) where e in ptr(b):ptr(b + 1)
}"""
CHANGED_ON_CPU = {
    "sum_terms": (16, r"w_block\d \+= 16\)"),
    "rows_ahead": (8, r"min\(c1 \+ 8, 299999\)"),
    "pieces": (256, r"schedule\(dynamic, 3\)"),
}


@pytest.mark.parametrize("key", CHANGED_ON_CPU)
def test_code_is_chosen_on_a_cpu_too(key: str) -> None:
    """Of rows that data choose everything; of others only how sums are added."""
    value, text = CHANGED_ON_CPU[key]
    specs = (tcdsl.spec((4001,), "int32"), tcdsl.spec((300_000,), "int32"))
    specs = (*specs, tcdsl.spec((50, 40), "float32"))
    options = Options(threads=4, check_indices=False)
    exe = tcdsl.define(RAGGED).f.compile(*specs, target="cpu", options=options)
    own = exe.choices["kernels"][0]
    assert list(own["code"]) == list(CHANGED_ON_CPU) and own["code"][key] != value
    forced = changed(exe.choices, code={key: value})
    other = tcdsl.define(RAGGED).f.compile(*specs, target="cpu", options=options, choices=forced)
    assert other.choices["kernels"][0]["code"] == {**own["code"], key: value}
    assert re.search(text, other.source) and not re.search(text, exe.source)
    (chosen,) = (c for c in exe.candidates if c.get("is_chosen"))
    assert chosen["code"] == own["code"]
    (listed,) = (c for c in exe.candidates if c.get("code_change") == {key: value})
    assert listed["predicted_us"] == chosen["predicted_us"], "no estimate knows it"
    none = changed(softmax().compile(X, target="cpu").choices, code={"rows_ahead": 8})
    with pytest.raises(OptionError, match=r"code rows_ahead=8 is none of 16"):
        softmax().compile(X, target="cpu", choices=none)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("isl", {"template": "cpu_isl_band"}),
        ("as written", {"template": "cpu_loops", "order": "as written"}),
    ],
)
def test_choices_of_the_first_version_are_read(old: str, new: dict[str, str]) -> None:
    """It had other names for two templates of a CPU, and nothing to choose of them."""
    f = tcdsl.define("def f(float(M,N) x) -> (y) { y(i,j) = 2 * x(i,j) }").f
    scheduler = "isl" if old == "isl" else "source_order"
    options, spec = Options(scheduler=scheduler, threads=1), tcdsl.spec((30, 40), "float32")
    exe = f.compile(spec, target="cpu", options=options)
    (made,) = exe.choices["kernels"]
    assert new.items() <= made.items()
    first = {
        "format": CHOICES_FORMAT, "version": 1, "target": "cpu",
        "kernels": [{"kernel": "S0", "template": old}],
    }  # fmt: skip
    again = f.compile(spec, target="cpu", options=options, choices=first)
    assert again.source == exe.source and again.choices == exe.choices
    with pytest.raises(OptionError, match=re.escape(repr(old))):
        f.compile(spec, target="cpu", options=options, choices={**first, "version": 2})


def test_threads_with_all_registers_are_in_one_block() -> None:
    """A block beside it would have those for which threads wait: for ever."""
    f = tcdsl.define("def f(half(M,K) x, half(K,N) w) -> (y) { y(m,n) +=! x(m,k) * w(k,n) }").f
    spec = tcdsl.spec((8192, 8192), "float16")
    exe = f.compile(spec, spec, target="emulate")
    assert exe.choices["kernels"][0]["code"]["thread_registers"] == 240
    two = changed(exe.choices, code={"resident_blocks": 2})
    other = f.compile(spec, spec, target="emulate", choices=two)
    assert other.choices["kernels"][0]["code"]["thread_registers"] == 0
    changes = [c["code_change"] for c in exe.candidates if "code_change" in c]
    assert {"resident_blocks": 2, "thread_registers": 0} in changes and {
        "resident_blocks": 1
    } in changes
    assert "tc_have_registers" in exe.source and "tc_have_registers" not in other.source
    both = changed(exe.choices, code={"resident_blocks": 2, "thread_registers": 240})
    with pytest.raises(OptionError, match="does not go with several resident_blocks"):
        f.compile(spec, spec, target="emulate", choices=both)


def test_kernels_begin_in_order_if_asked() -> None:
    f = tcdsl.define("def f(float(N) x) -> (s, y) { s +=! x(i)\n y(i) = x(i) / s }").f
    spec = tcdsl.spec((1 << 22,), "float32")
    exe = f.compile(spec, target="emulate")
    first, _, second = exe.choices["kernels"]
    assert "tc_await_kernels" in exe.source and second["code"]["early"] is True
    late = {**second, "code": {"early": False}}
    forced = {**exe.choices, "kernels": [first, late]}
    other = f.compile(spec, target="emulate", choices=forced)
    assert "tc_await_kernels" not in other.source
    assert other.choices["kernels"][2]["code"]["early"] is False


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ({"erly": True}, "its code has no 'erly'; it has prefetch_bytes, resident_blocks, early"),
        ({"early": 1}, "code early=1 is none of True, False"),
        ({"prefetch_bytes": 4096}, "code prefetch_bytes=4096 is none of 0"),
        ({"sum_terms": 1000}, "code sum_terms=1000 is none of 8, 16, 32"),
    ],
)
def test_code_that_does_not_fit_is_named(code: dict[str, Any], words: str) -> None:
    exe = softmax().compile(X, target="emulate")
    with pytest.raises(OptionError, match=re.escape(words)):
        softmax().compile(X, target="emulate", choices=changed(exe.choices, code=code))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"threads": 48}, ["threads=48 is none of 32, 64, 128"]),
        ({"keep": 1}, ["keep=1 does not go with the others"]),
        ({"thread": 3}, ["row has no 'thread'", "threads, vector, keep"]),
        ({"template": "column"}, ["template 'column' does not apply", "neighbours in memory"]),
        ({"template": "rwo"}, ["no template 'rwo'", "did you mean 'row'"]),
        ({"kernel": "S7"}, ["there is no such kernel"]),
    ],
)
def test_choices_that_do_not_fit_say_why(entry: dict[str, Any], words: list[str]) -> None:
    choices = softmax().compile(X, target="emulate").choices
    with pytest.raises(OptionError) as caught:
        softmax().compile(X, target="emulate", choices=changed(choices, **entry))
    assert "choices" in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(("made", "asked"), [("cpu", "emulate"), ("cuda", "cpu")])
def test_choices_of_a_target_with_other_kernels_are_refused(made: str, asked: str) -> None:
    choices = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "target": made, "kernels": []}
    with pytest.raises(OptionError, match=f"it is of target '{made}', which makes other kernels"):
        softmax().compile(X, target=asked, choices=choices)


@pytest.mark.parametrize(("target", "template"), [("cpu", "tile_mma"), ("emulate", "cpu_tile")])
def test_templates_of_another_target_are_refused(target: str, template: str) -> None:
    kernels = [{"kernel": "S0", "template": template}]
    choices = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": kernels}
    specs = tcdsl.spec((300, 301), "float32"), tcdsl.spec((301, 302), "float32")
    with pytest.raises(OptionError, match=f"template '{template}' is for another target"):
        tcdsl.define(MATMUL).mm.compile(*specs, target=target, choices=choices)


def test_values_that_are_left_out_go_with_those_given() -> None:
    kernels = [{"kernel": "S0+S1+S2_row0+S2", "template": "row", "threads": 256, "keep": 4}]
    choices = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": kernels}
    (favoured,) = softmax().compile(X, target="emulate").choices["kernels"]
    (made,) = softmax().compile(X, target="emulate", choices=choices).choices["kernels"]
    assert (made["threads"], made["keep"]) == (256, 4)
    assert made["vector"] == favoured["vector"]
    kernels[0] = {"kernel": "S0+S1+S2_row0+S2", "template": "row", "threads": 256}
    (made,) = softmax().compile(X, target="emulate", choices=choices).choices["kernels"]
    assert (made["threads"], made["keep"]) == (256, 4), "keep 2 does not go with 256 threads"


def test_choices_for_no_elements_say_that_nothing_is_computed() -> None:
    choices = softmax().compile(X, target="emulate").choices
    with pytest.raises(OptionError, match="there is no such kernel; nothing is computed"):
        softmax().compile(tcdsl.spec((0, 64), "float32"), target="emulate", choices=choices)


@pytest.mark.slow_but("cpu-more1")
@pytest.mark.parametrize(("target", "more"), [("emulate", {"threads": 64}), ("cpu", {"row": 1})])
def test_what_a_template_has_not_is_not_ignored(target: str, more: dict[str, Any]) -> None:
    specs = tcdsl.spec((300, 301), "float32"), tcdsl.spec((301, 302), "float32")
    exe = tcdsl.define(MATMUL).mm.compile(*specs, target=target)
    with pytest.raises(OptionError, match=f"has no '{next(iter(more))}'"):
        tcdsl.define(MATMUL).mm.compile(*specs, target=target, choices=changed(exe.choices, **more))


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("{", "no JSON"),
        ("[]", "format"),
        ({"format": "tcdsl choices", "version": 0, "kernels": []}, "version 0"),
        ({"format": "tcdsl choices", "version": 3, "kernels": []}, "version 3, and 1 to 2 can"),
        ({"format": "tcdsl choices", "version": True, "kernels": []}, "version True"),
        ({"format": "tcdsl choices", "version": 1, "kernels": [{}]}, "kernels"),
        ({"format": "tcdsl choices", "version": 2, "kernels": [{}]}, "kernels"),
        ({"format": "tcdsl choices", "version": 2, "kernels": [], "x": {1}}, "plain data"),
        (
            {"format": "tcdsl choices", "version": 2, "kernels": [TWICE, TWICE]},
            "S0 is there more than once",
        ),
    ],
)
def test_what_is_no_choices_is_refused(given: Any, word: str) -> None:
    with pytest.raises(OptionError) as caught:
        softmax().compile(X, target="emulate", choices=given)
    assert word in str(caught.value)


def test_choices_are_an_option_like_others() -> None:
    exe = softmax().compile(X, target="emulate")
    options = Options(choices=json.dumps(exe.choices))
    assert Options.from_json(options.to_json()) == options
    assert softmax().compile(X, target="emulate", options=options).source == exe.source
