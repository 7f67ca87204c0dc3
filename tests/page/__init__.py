"""A made-up week, for the tests of what looks back on one; ``make page`` shows its page."""
