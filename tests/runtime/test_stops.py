"""Stop strings and decoding do not depend on where pieces end."""

from hypothesis import given
from hypothesis import strategies as st

from trmodel.runtime.server.stops import StopFinder
from trmodel.runtime.server.tokenizer import ByteTokenizer

TEXT = st.text("ab", max_size=20)


def expected(text, stops):
    """Character by character: the first stop string that is complete ends the text."""
    for end in range(len(text) + 1):
        found = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: min(found)], True
    return text, False


@given(st.lists(TEXT, max_size=6), st.lists(st.text("ab", min_size=1, max_size=5), max_size=3))
def test_stops_are_found_across_pieces(pieces, stops):
    finder, passed = StopFinder(stops), ""
    text, found = expected("".join(pieces), stops)
    for piece in pieces:
        passed += finder.feed(piece)
        assert text.startswith(passed)
    passed += finder.end()
    assert (passed, finder.found) == (text, found)


def test_nothing_is_held_back_longer_than_needed():
    finder = StopFinder(["abc"])
    assert finder.feed("xa") == "x"
    assert finder.feed("b") == ""
    assert finder.feed("d") == "abd"
    assert finder.feed("abc tail") == ""
    assert finder.found
    assert finder.feed("more") == finder.end() == ""


@given(st.text(), st.integers(1, 5))
def test_bytes_are_decoded_whatever_their_pieces(text, size):
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode(text)
    decoder = tokenizer.decoder()
    pieces = [decoder.feed(tokens[at : at + size]) for at in range(0, len(tokens), size)]
    assert "".join(pieces) + decoder.end() == text.encode("utf-8", "replace").decode()


def test_half_a_character_is_shown_as_such():
    decoder = ByteTokenizer().decoder()
    assert decoder.feed([0xE2, 0x82]) == ""
    assert decoder.end() == "\ufffd"
