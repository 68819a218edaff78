"""From syntax trees to typed comprehensions."""
