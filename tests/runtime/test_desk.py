"""The front end's books: who is admitted and who is told to come again."""

import pytest

from trmodel.errors import InfeasibleError, InputError
from trmodel.runtime.desk import Busy, Desk
from trmodel.runtime.messages import Kind, PeerReq, Report, Sampling

EAGER = ((1, 1),)


def sent(desk, kind):
    return [m for _, m in desk.outgoing if isinstance(m, PeerReq) and m.kind is kind]


def finish(desk, number):
    tokens = (1,) * desk.entries[number].sampling.max_tokens
    desk.receive(0, Report(number, 1, len(tokens), 0, tokens, 0, "length"))


def test_a_request_is_admitted_when_its_longest_reply_has_room():
    desk = Desk(2, 0, max_live=8, max_queue=2, vectors=EAGER, kv_tokens=100)
    first = desk.submit((1,) * 10, Sampling(max_tokens=50))
    second = desk.submit((1,) * 10, Sampling(max_tokens=50))
    third = desk.submit((1,) * 5, Sampling(max_tokens=5))
    assert (desk.n, desk.queued) == (1, 2), "who waits longest comes first, though it needs more"
    with pytest.raises(Busy):
        desk.submit((1,), Sampling(max_tokens=1))
    finish(desk, first)
    assert (desk.n, desk.queued) == (2, 0)
    assert [m.request for m in sent(desk, Kind.new)] == [first, second, third]
    for number in (second, third):
        desk.abort(number)
    desk.submit((1,) * 50, Sampling(max_tokens=50))
    assert desk.n == 1


def test_without_a_queue_only_those_are_taken_who_can_run():
    desk = Desk(2, 0, max_live=1, max_queue=0, vectors=EAGER)
    number = desk.submit((1,), Sampling())
    with pytest.raises(Busy, match="1 requests run and 0 wait"):
        desk.submit((1,), Sampling())
    desk.abort(number)
    desk.submit((1,), Sampling())


def test_an_end_is_told_to_every_model_once():
    desk = Desk(3, 0, max_live=2, max_queue=0, vectors=((1, 1, 1),))
    number = desk.submit((1,), Sampling(max_tokens=2))
    finish(desk, number)
    finish_again = Report(number, 1, 2, 0, (1, 1), 0, "length")
    desk.receive(0, finish_again)
    assert len(sent(desk, Kind.finished)) == 3
    assert [event.finish for event in desk.events if event.finish] == ["length"]


@pytest.mark.parametrize("vectors", [(), ((1,),), ((0, 1),)])
def test_tables_of_the_wrong_shape_are_refused(vectors):
    desk = Desk(2, 0, max_live=2, max_queue=0, vectors=EAGER)
    with pytest.raises(InputError):
        desk.propose(vectors)
    with pytest.raises(InfeasibleError):
        desk.propose(((1, 2),))
    assert desk.table_version == 1
