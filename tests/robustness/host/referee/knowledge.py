"""What can be known of a device that was given: which device files it certainly has by now, and which it may have. Pure."""

from collections.abc import Iterator

from tests.robustness.host.hardware import Node, is_same
from tests.robustness.host.host import Host
from tests.robustness.host.referee.records import Given, goes_with_device


def is_known_by_more_than_number(host: Host, given: Given) -> bool:
    """Numbers and names of the kernel say nothing after a boot; then its plugin has to list it again."""
    stick = given.stick
    if stick is None:
        return given.boot == host.boots or not given.node.unit[0].startswith("hub")
    return given.boot == host.boots or (
        not given.by_port and bool(given.identity[2]) and given.identity not in host.repeated
    )


def certainly(host: Host, given: Given) -> Iterator[Node]:
    """Where what was given is now."""
    stick = given.stick
    if stick is None:
        if given.by_path:
            node = host.node(given.path)
            yield from [node] if node is not None and node.unit == given.node.unit else []
        else:
            yield from (node for card in host.cards for node in card.nodes if node.unit == given.node.unit)
        return
    if not stick.port or stick.identity != given.identity:
        return
    if given.by_port and not given.by_path:
        yield from (node for node in stick.nodes if stick.port == given.port and node.unit == given.node.unit)
        return
    node = host.node(given.path)
    has_own_serial = bool(stick.identity[2]) and stick.identity not in host.repeated
    # a stick without a serial of its own that went to another port is known when its plugin lists the name again
    may_be_known = has_own_serial or stick.port == given.port
    if given.by_path and may_be_known and node is not None and node.unit == given.node.unit and node.stick is stick:
        yield node
    elif (stick.port == given.port and not given.by_path) or (has_own_serial and goes_with_device(given)):
        yield from (node for node in stick.nodes if node.unit == given.node.unit and node.subsystem != "usb")


def may_be(host: Host, given: Given, path: str, node: Node) -> bool:
    """Whether nobody could know that this is not what was allocated."""
    is_in_its_port = given.by_port and node.stick is not None and node.stick.port == given.port
    # of a device that is selected all files are its own, also those that the configuration selects by now
    is_of_it = not given.by_path and node.stick is not None and node.stick is given.stick
    if node.unit == given.node.unit or is_in_its_port or is_of_it:
        return True
    if given.by_path and not given.is_certain and path == given.path:
        # the name had just passed to another device, and which of the two was listed is not known
        return True
    stick = node.stick
    if given.by_path and stick is not None and stick is given.stick:
        # a file of it that the configuration has added since
        return True
    if stick is None or given.stick is None:
        # a card that has another driver by now
        return stick is given.stick and bool(node.device) and node.device == given.node.device
    identity = stick.identity
    goes_by_port = not given.identity[2] or given.identity in host.repeated
    if stick.port == given.port and (given.by_port or (goes_by_port and identity[:2] == given.identity[:2])):
        return True
    if identity != given.identity or node.subsystem != given.node.subsystem:
        return False
    # two of one maker with one serial cannot be known from each other
    return stick.port == given.port or bool(identity[2])


def possibly(host: Host, given: Given, node: Node) -> bool:
    """Whether it may be what was allocated, for all that can be known."""
    if is_same(given.node, node) or given.node.number == node.number:
        return True
    now = host.node(given.path)
    if now is not None and is_same(now, node):
        return True
    stick = node.stick
    return (
        stick is not None and given.stick is not None and (stick.port == given.port or stick.identity == given.identity)
    )


def is_as_it_was(host: Host, given: Given) -> bool:
    """Whether its path still leads to it, with the same number in the same place."""
    node = host.node(given.path)
    return node is not None and (node.number, node.unit, node.sysfs) == (
        given.node.number,
        given.node.unit,
        given.node.sysfs,
    )
