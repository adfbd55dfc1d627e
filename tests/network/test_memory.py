"""The network in memory: who hears whom, and when."""

from flockwise.net.memory import Letter, MemoryNetwork


class Ear:
    """Writes down what it hears."""

    def __init__(self):
        self.heard = []

    def on_published(self, sender, data):
        self.heard.append(("published", sender, data))

    def on_greeting(self, sender, data):
        self.heard.append(("greeting", sender, data))

    def on_presence(self, neighbor, is_up):
        self.heard.append(("up" if is_up else "down", neighbor))

    def take(self):
        heard, self.heard = self.heard, []
        return heard


def network_of(**neighbors):
    network, ears = MemoryNetwork(), {name: Ear() for name in neighbors}
    for name, others in neighbors.items():
        network.attach(name, ears[name], others)
    return network, ears


def test_neighbors_see_each_other_come_and_go():
    network, ears = network_of(anna=["ben"], ben=["anna"], carl=[])
    assert [ears[name].take() for name in ("anna", "ben", "carl")] == [[("up", "ben")], [("up", "anna")], []]
    network.detach("ben")
    assert ears["anna"].take() == [("down", "ben")]
    network.attach("ben", ears["ben"], ["anna"])
    assert ears["anna"].take() == [("up", "ben")]


def test_who_is_no_neighbor_on_both_sides_is_not_seen():
    _, ears = network_of(anna=["ben"], ben=[])
    assert ears["anna"].take() == ears["ben"].take() == []


def test_a_new_neighbor_is_seen_and_old_ones_are_not_seen_again():
    network, ears = network_of(anna=["ben"], ben=["anna"], carl=["anna"])
    for ear in ears.values():
        ear.take()
    network.attach("anna", ears["anna"], ["ben", "carl"])
    assert ears["anna"].take() == [("up", "carl")]
    assert ears["carl"].take() == [("up", "anna")]
    assert ears["ben"].take() == []


def test_what_is_published_reaches_all_who_listen_and_greetings_one():
    network, ears = network_of(anna=["ben", "carl"], ben=["anna"], carl=["anna"], dora=["ben"])
    for ear in ears.values():
        ear.take()
    network.publish("anna", b"model")
    network.send("anna", "carl", b"hello")
    assert ears["ben"].take() == []  # it is on its way
    assert network.deliver_all() == 3
    assert ears["ben"].take() == [("published", "anna", b"model")]
    assert ears["carl"].take() == [("published", "anna", b"model"), ("greeting", "anna", b"hello")]
    assert ears["dora"].take() == []


def test_letters_to_the_absent_are_lost():
    network, ears = network_of(anna=["ben"], ben=["anna"])
    network.publish("anna", b"model")
    network.detach("ben")
    assert network.deliver_all() == 1
    assert ("published", "anna", b"model") not in ears["ben"].take()


def test_letters_can_be_carried_by_hand():
    letters = []
    network, ear = MemoryNetwork(letters.append), Ear()
    network.attach("ben", ear, ["anna"])
    network.publish("anna", b"model")
    assert letters == [Letter("anna", "ben", "published", b"model")]
    assert ear.take() == []
    network.deliver(letters[0])
    assert ear.take() == [("published", "anna", b"model")]
