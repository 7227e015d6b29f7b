"""Cases, by what they are about. Each function test_* is one: it raises if something is wrong."""
