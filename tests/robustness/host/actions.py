"""What each step does on the made-up host. A function returns what it did, or nothing where it cannot be done now."""

import random
from collections.abc import Sequence
from typing import TypeVar

from tests.robustness.host.faults import UNRELATED
from tests.robustness.host.hardware import FUSE
from tests.robustness.host.host import HUBS
from tests.robustness.host.referee.referee import Referee
from tests.robustness.host.world import FOREIGN, World

_MAX_PODS, _MAX_STICKS = 8, 9
_T = TypeVar("_T")


def plug(world: World, referee: Referee, draw: random.Random) -> str:
    boxed = [stick for stick in world.host.sticks if not stick.port]
    ports = world.host.free_ports()
    if not boxed or not ports or len(world.host.plugged()) >= _MAX_STICKS:
        return ""
    # a stick that was there before is tried again and again
    stick, port = draw.choice(boxed), draw.choice(ports)
    world.host.plug(stick, port)
    return f"plug {stick.name} {stick.identity} at {port}: {_files(stick.nodes)}"


def unplug(world: World, referee: Referee, draw: random.Random) -> str:
    if (stick := _drawn(draw, world.host.plugged())) is None:
        return ""
    world.host.unplug(stick)
    return f"unplug {stick.name}"


def replug(world: World, referee: Referee, draw: random.Random) -> str:
    """Elsewhere, or where it was; others may have taken its numbers meanwhile."""
    if (stick := _drawn(draw, world.host.plugged())) is None:
        return ""
    port = stick.port
    world.host.unplug(stick)
    if draw.random() < 0.5:
        world.settle(draw)
    port = draw.choice([port, *world.host.free_ports()])
    world.host.plug(stick, port)
    return f"replug {stick.name} at {port}: {_files(stick.nodes)}"


def power_loss(world: World, referee: Referee, draw: random.Random) -> str:
    hub = draw.choice(HUBS)
    lost = [stick for stick in world.host.plugged() if stick.port.startswith(f"{hub}.")]
    ports = {stick.name: stick.port for stick in lost}
    for stick in lost:
        world.host.unplug(stick)
    if draw.random() < 0.5:
        world.settle(draw)
    draw.shuffle(lost)
    for stick in lost:
        world.host.plug(stick, ports[stick.name])
    return f"power loss of hub {hub}: {', '.join(f'{s.name} {_files(s.nodes)}' for s in lost)}" if lost else ""


def firmware(world: World, referee: Referee, draw: random.Random) -> str:
    if (stick := _drawn(draw, [stick for stick in world.host.plugged() if len(stick.modes) > 1])) is None:
        return ""
    world.host.switch(stick, draw.randrange(len(stick.modes)))
    return f"firmware of {stick.name} is now {stick.identity}: {_files(stick.nodes)}"


def rebind(world: World, referee: Referee, draw: random.Random) -> str:
    card = draw.choice(world.host.cards)
    world.host.rebind(card)
    return f"rebind {card.name}: {_files(card.nodes)}"


def reboot(world: World, referee: Referee, draw: random.Random) -> str:
    _kill(world, referee, draw)
    world.reboot(draw)
    return f"reboot: {', '.join(f'{s.name} {_files(s.nodes)}' for s in world.host.plugged())}"


def edit(world: World, referee: Referee, draw: random.Random) -> str:
    word = world.reconfigure(draw)
    return f"edit ({word}): {world.config}"


def _kill(world: World, referee: Referee, draw: random.Random) -> bool:
    """Returns whether the last checkpoint had just been written."""
    is_saved = draw.random() < 0.5
    agent, world.agent = world.agent, None
    if agent is not None:
        if is_saved:
            agent.save()
        if not agent.is_saved:
            referee.agent_killed(agent.saved_keys)
    return is_saved


def kill_agent(world: World, referee: Referee, draw: random.Random) -> str:
    if world.agent is None:
        return ""
    is_saved = _kill(world, referee, draw)
    word = "with the last checkpoint written" if is_saved else ""
    if draw.random() < 0.7:
        world.start_agent(draw)
        return f"agent killed {word} and started"
    return f"agent killed {word}"


def start_agent(world: World, referee: Referee, draw: random.Random) -> str:
    if world.agent is not None:
        return ""
    world.start_agent(draw)
    return "agent started"


def kill_plugin(world: World, referee: Referee, draw: random.Random) -> str:
    if world.agent is None or (name := _drawn(draw, sorted(world.agent.plugins))) is None:
        return ""
    world.stop_plugin(name)
    if draw.random() < 0.5:
        world.start_plugin(name)
        return f"plugin {name} killed, and back"
    return f"plugin {name} killed"


def start_plugin(world: World, referee: Referee, draw: random.Random) -> str:
    if world.agent is None:
        return ""
    stopped = [each.name for each in world.config.resources if each.name not in world.agent.plugins]
    if (name := _drawn(draw, stopped)) is None:
        return ""
    world.start_plugin(name)
    return f"plugin {name} started"


def create_pod(world: World, referee: Referee, draw: random.Random) -> str:
    if len(world.pods) >= _MAX_PODS:
        return ""
    names = [each.name for each in world.config.resources]
    if world.agent is not None and FOREIGN in world.agent.foreign:
        names.append(FOREIGN)
    requests = [
        {name: draw.choice([1, 1, 1, 2]) for name in draw.sample(names, min(len(names), draw.choice([1, 1, 1, 2])))}
        for _ in range(draw.choice([1, 1, 1, 2]))
    ]
    uid = world.create_pod(requests)
    started = ""
    if draw.random() < 0.6:
        world.start_container(uid, "c0")
        started = f"; start c0{_outcome(world)}"
    return f"create {uid}: {requests}{started}"


def delete_pod(world: World, referee: Referee, draw: random.Random) -> str:
    if (uid := _drawn(draw, sorted(world.pods))) is None:
        return ""
    if draw.random() < 0.7:
        for instance in [i for i in world.instances.values() if i.pod_uid == uid]:
            world.end_container(instance)
    world.delete_pod(uid)
    runs = any(i.pod_uid == uid for i in world.instances.values())
    return f"delete {uid}{', whose containers run on' if runs else ''}"


def start_container(world: World, referee: Referee, draw: random.Random) -> str:
    waiting = world.waiting_containers()
    if not waiting or world.agent is None:
        return ""
    uid, name = draw.choice(waiting)
    world.start_container(uid, name)
    return f"start {uid} {name}{_outcome(world)}"


def end_container(world: World, referee: Referee, draw: random.Random) -> str:
    if (instance := _drawn(draw, [*world.instances.values()])) is None:
        return ""
    world.end_container(instance)
    return f"end {instance.shown.id}"


def restart_container(world: World, referee: Referee, draw: random.Random) -> str:
    found = [i for i in world.instances.values() if i.pod_uid in world.pods]
    if world.agent is None or (instance := _drawn(draw, found)) is None:
        return ""
    world.end_container(instance)
    world.start_container(instance.pod_uid, instance.shown.name)
    return f"restart {instance.pod_uid} {instance.shown.name}{_outcome(world)}"


def unreadable(world: World, referee: Referee, draw: random.Random) -> str:
    name = draw.choice(UNRELATED)
    world.faults.add_unrelated(name)
    world.host.version += 1
    return f"unreadable: {name}"


def readable(world: World, referee: Referee, draw: random.Random) -> str:
    name = draw.choice(UNRELATED)
    world.faults.remove_unrelated(name)
    world.host.version += 1
    return f"gone: {name}"


def exhausted(world: World, referee: Referee, draw: random.Random) -> str:
    """The agent has no free descriptor: it can read no file of the host."""
    if world.faults.are_all:
        return ""
    world.faults.are_all = True
    world.host.version += 1
    return "no descriptor is free"


def recovered(world: World, referee: Referee, draw: random.Random) -> str:
    if not world.faults.are_all:
        return ""
    world.faults.are_all = False
    world.host.version += 1
    return "descriptors are free"


def broken(world: World, referee: Referee, draw: random.Random) -> str:
    """A file of a stick cannot be read."""
    if (stick := _drawn(draw, world.host.plugged())) is None:
        return ""
    file = draw.choice(world.host.files_of(stick))
    world.host.break_file(stick, file)
    return f"{stick.name} is broken: {file}"


def repaired(world: World, referee: Referee, draw: random.Random) -> str:
    if (stick := _drawn(draw, [stick for stick in world.host.plugged() if stick.broken])) is None:
        return ""
    world.host.repair(stick)
    return f"{stick.name} is no longer broken"


def cordon(world: World, referee: Referee, draw: random.Random) -> str:
    if world.agent is None:
        return ""
    listed = [(n, i) for n in sorted(world.agent.plugins) for i in world.agent.manager.resources[n].listed.ids]
    if (chosen := _drawn(draw, listed)) is None:
        return ""
    name, device_id = chosen
    world.cordon(name, device_id)
    return f"cordon {name} {device_id}"


def uncordon(world: World, referee: Referee, draw: random.Random) -> str:
    if (name := _drawn(draw, sorted(world.cordons))) is None:
        return ""
    world.uncordon(name)
    return f"uncordon {name}"


def foreign(world: World, referee: Referee, draw: random.Random) -> str:
    if world.agent is None:
        return ""
    if FOREIGN in world.agent.foreign:
        world.stop_foreign()
        return "foreign plugin ends"
    path = draw.choice(sorted(path for path in world.host.nodes if path != FUSE))
    world.start_foreign(path)
    return f"foreign plugin gives {path}"


def wait(world: World, referee: Referee, draw: random.Random) -> str:
    seconds = draw.choice([5.0, 30.0, 400.0])
    world.pass_time(seconds)
    return f"wait {seconds:.0f} s"


def idle(world: World, referee: Referee, draw: random.Random) -> str:
    """All pods end, every plugin is there, and everything can be had."""
    world.faults.are_all = False
    if world.agent is None:
        world.start_agent(draw)
    for each in world.config.resources:
        world.start_plugin(each.name)
    for _ in range(3):
        world.pass_time(400.0)
        world.settle(draw)
        referee.check()
    referee.check_waiting()
    for instance in list(world.instances.values()):
        world.end_container(instance)
    for uid in list(world.pods):
        world.delete_pod(uid)
    for name in list(world.cordons):
        world.uncordon(name)
    world.pass_time(400.0)
    referee.check()
    referee.check_idle()
    return "all pods end"


def _drawn(draw: random.Random, found: Sequence[_T]) -> _T | None:
    return draw.choice(found) if found else None


def _outcome(world: World) -> str:
    started = world.started
    if started is None:
        return ", and no agent is there"
    if started.refusal:
        return f", refused: {started.refusal[:150]}"
    return " with " + (" ".join(f"{file.path}={file.node.number}" for file in started.files) or "nothing")


def _files(nodes: list) -> str:  # type: ignore[type-arg]
    return " ".join(f"{node.path}={node.number}" for node in nodes if node.subsystem != "usb")
