"""Whose sentence is next: each client has had about as many tokens as every other that waits."""

from __future__ import annotations

from clearhead.decoding.sentence import Sentence
from clearhead.serving.fair_queue import FairOrder


def order_of(sentences):
    """Return an order in which those sentences wait, given as clients and lengths."""
    clients = [client for client, _ in sentences]
    left = []
    order = FairOrder(clients.__getitem__, left.append)
    order.extend(Sentence(number, [5] * length, 9) for number, (_, length) in enumerate(sentences))
    return order, clients, left


def test_clients_take_turns_however_much_one_asks_for():
    order, clients, left = order_of([("a", 4)] * 6 + [("b", 4), ("c", 4)])
    assert len(order) == 8
    taken = [order.popleft().number for _ in range(8)]
    assert {clients[number] for number in taken[:3]} == {"a", "b", "c"}
    assert left == taken
    assert [number for number in taken if clients[number] == "a"] == list(range(6))  # its own in their order
    assert len(order) == 0


def test_turns_are_counted_in_tokens():
    order, clients, _ = order_of([("long", 30)] * 3 + [("short", 10)] * 9)
    taken = [clients[order.popleft().number] for _ in range(8)]
    assert taken.count("short") == 3 * taken.count("long")


def test_new_client_starts_at_current_virtual_time():
    order, clients, _ = order_of([("a", 10)] * 10)
    for _ in range(5):
        order.popleft()
    clients += ["b"] * 5
    order.extend(Sentence(number, [5] * 10, 9) for number in range(10, 15))
    assert sorted(clients[order.popleft().number] for _ in range(6)) == ["a"] * 3 + ["b"] * 3


def test_popleft_takes_the_first_of_the_queue():
    order, _, _ = order_of([("a", 3), ("b", 2), ("a", 1)])
    while len(order):
        first = order[0]
        assert order.popleft() is first


def test_one_sentence_at_a_time_wins_no_turns():
    order, clients, _ = order_of([("many", 10)] * 9 + [("one", 10)])
    for _ in range(8):
        if clients[order.popleft().number] == "one":  # at once it has the next
            clients.append("one")
            order.extend([Sentence(len(clients) - 1, [5] * 10, 9)])
    assert sum(client == "one" for client in clients) == 5


def test_discarded_sentences_cost_no_virtual_time():
    order, clients, left = order_of([("a", 10)] * 4 + [("b", 10)] * 2)
    assert order.discard({0, 1, 4, 99}) == [0, 1, 4]
    assert len(order) == 3
    assert [clients[order.popleft().number] for _ in range(3)] == ["a", "b", "a"]
    order.extend([Sentence(0, [5] * 10, 9)])
    assert order.discard([0]) == [0]
    assert len(order) == 0
    assert left == [2, 5, 3]
