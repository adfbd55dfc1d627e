"""Descent on a GPU, Eq. (4) and Eq. (6): what its kernels need, and how a run goes on to a barrier."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from flockwise.engine.base import ClockedRun, RunSettings, State, Status, models_sent
from flockwise.engine.gpu.available import device
from flockwise.engine.gpu.clocks import count_earlier, count_fires
from flockwise.engine.gpu.fire import HEAD, TAIL, fire
from flockwise.engine.gpu.gradient import MOST_COLUMNS
from flockwise.engine.gpu.memory import (
    ArrayShape,
    Layout,
    allocate,
    check_room,
    fetch,
    fill,
    pieces,
    torch_kind,
)
from flockwise.engine.gpu.noise import draw_of
from flockwise.engine.gpu.records import (
    CLOCK_BYTES,
    DEGREE,
    EDGE,
    NUMBER,
    PLACE_WORDS,
    ROW,
    SAMPLES,
    Agents,
)
from flockwise.engine.gpu.slopes import slope_of
from flockwise.engine.gpu.tiles import COLUMNS
from flockwise.engine.state import DescentState, tail_averages
from flockwise.errors import SimulationError
from flockwise.method.rules import Descent, LocalData, StoredData
from flockwise.privacy.mechanisms import Norm
from flockwise.randomness.clocks import NEVER, TIME_UNIT

# For how many ticks of an agent the queue has room, and for how many of all: 32 bits number a turn.
TURNS_AN_AGENT = 16
MOST_TURNS = 1 << 30
AGENTS_A_PROGRAM = 32
INT32_MAX = int(np.iinfo(np.int32).max)


class DeviceSamples(NamedTuple):
    """Of all agents, one after the other; or, in model propagation, their anchors as `features`."""

    features: torch.Tensor
    targets: torch.Tensor
    bounds: torch.Tensor


class DeviceEdges(NamedTuple):
    neighbors: torch.Tensor
    shares: torch.Tensor


class DeviceNoise(NamedTuple):
    """scale of agent i's update k = multipliers[plans[i], k]·sensitivities[i]."""

    multipliers: torch.Tensor
    plans: torch.Tensor
    sensitivities: torch.Tensor
    tail_sums: torch.Tensor


class Queue(NamedTuple):
    """The agents to fire, in a valid order. counters: the next turn, and how many agents were ever queued."""

    agents: torch.Tensor
    counters: torch.Tensor
    sums: torch.Tensor


class Tuning(NamedTuple):
    """What changes speed and nothing else: samples and neighbors at a time, programs on a multiprocessor,
    their registers, and the most units of time from barrier to barrier.
    """

    rows: int = 8
    neighbors: int = 16
    programs: int = 16
    registers: int = 128
    units: int = 12

    @classmethod
    def of(cls, tiles: int) -> Tuning:
        """The fastest on an H200: a model of one tile leaves registers for more programs."""
        return cls(rows=16, programs=32, registers=64) if tiles == 1 else cls()


class Form(NamedTuple):
    """Sizes of a run and its functions, which kernels are compiled for."""

    SLOPE: Any
    PARAMETER: float | int
    NORM: Norm | None
    DRAW: Any
    STRIDE: int
    SIZE: int
    ROW_STRIDE: int
    FEATURES: int
    OUTPUTS: int
    OUTPUT_BLOCK: int
    TILES: int
    TILE_BLOCK: int
    RECORD: int

    @classmethod
    def of(cls, rule: Descent) -> Form:
        size, local, noise = rule.start.shape[1], rule.local, rule.noise
        slope, parameter, features, outputs = None, 0, size, 1
        if isinstance(local, LocalData):
            slope, parameter = slope_of(local.loss)
            features, outputs = local.features.shape[1], local.loss.outputs
        bytes_each = rule.start.dtype.itemsize
        stride = _padded(size) + CLOCK_BYTES // bytes_each
        tiles = -(-size // COLUMNS.value) if outputs == 1 and size <= MOST_COLUMNS else 0
        return cls(
            slope,
            parameter,
            None if noise is None else noise.norm,
            None if noise is None else draw_of(noise.schedule.mechanism),
            stride,
            size,
            _padded(features),
            features,
            outputs,
            _power_of_two(outputs),
            tiles,
            _power_of_two(tiles),
            stride * bytes_each // 4,
        )


def _padded(size: int) -> int:
    """Four numbers are read at once, so rows begin at multiples of four."""
    return -(-size // 4) * 4


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()


def layout_of(rule: Descent, form: Form, programs: int) -> Layout:
    """Every array of a run; those of one number are never read."""
    n, number, local, noise = rule.n_agents, torch_kind(rule.start.dtype), rule.local, rule.noise
    rows = (len(local.features), form.ROW_STRIDE) if isinstance(local, LocalData) else (n, form.ROW_STRIDE)
    n_samples = rows[0] if isinstance(local, LocalData) else 1
    return {
        "features": ArrayShape(rows, number),
        "targets": ArrayShape((n_samples,), number),
        "bounds": ArrayShape((1 if noise is None else n_samples,), number),
        "neighbors": ArrayShape((max(len(rule.edges.neighbors), 1),), torch.int32),
        "shares": ArrayShape((max(len(rule.edges.neighbors), 1),), number),
        "records": ArrayShape((n, form.STRIDE), number),
        "places": ArrayShape((n, PLACE_WORDS.value // 2), torch.int64),
        "steps": ArrayShape((n, 4), number),
        "multipliers": ArrayShape((1, 1) if noise is None else noise.multipliers.shape, torch.float64),
        "plans": ArrayShape((1 if noise is None else n,), torch.int32),
        "sensitivities": ArrayShape((1 if noise is None else n,), torch.float64),
        "tail_sums": ArrayShape((1, 1) if noise is None else (n, form.SIZE), torch.float64),
        "queue": ArrayShape((min(TURNS_AN_AGENT * n + 1024, MOST_TURNS),), torch.int32),
        "counters": ArrayShape((64,), torch.int32),
        "sums": ArrayShape((1 if form.TILES else programs, form.STRIDE), number),
    }


class DeviceRun(ClockedRun):
    """Exact asynchrony on a GPU: the events and, to rounding, the models of the other engines."""

    def __init__(self, rule: Descent, settings: RunSettings, state: State | None = None) -> None:
        _refuse_unusable(settings)
        super().__init__(rule, settings)
        self._descent, self._device = rule, device()
        self._form = Form.of(rule)
        self._tuning = Tuning.of(self._form.TILES)
        layout = layout_of(rule, self._form, self._programs)
        check_room(layout, self._device)
        of = allocate(layout, self._device)
        self._samples = DeviceSamples(of["features"], of["targets"], of["bounds"])
        self._edges = DeviceEdges(of["neighbors"], of["shares"])
        self._agents = Agents.of(of["records"], of["places"], of["steps"])
        self._noise = DeviceNoise(of["multipliers"], of["plans"], of["sensitivities"], of["tail_sums"])
        self._queue = Queue(of["queue"], of["counters"], of["sums"])
        begun = DescentState.from_arrays(state) if state else None
        start = begun or DescentState.begin(rule, self.table, self.seed)
        self._done = int(start.updates.sum())
        self._shown: NDArray[Any] | None = None
        self._fill(start)
        self._launch_for_all(count_earlier, self._edges, self._agents, rule.n_agents)

    def _fill(self, start: DescentState) -> None:
        """Copy the rule and where its run begins."""
        rule, local, edges = self._descent, self._descent.local, self._descent.edges
        assert not isinstance(local, StoredData)
        samples, agents, noise = self._samples, self._agents, self._noise
        shrink = np.zeros(rule.n_agents)
        if isinstance(local, LocalData):
            fill(samples.features, local.features)
            fill(samples.targets, local.targets)
            fill(agents.places[:, ROW.value], local.offsets[:-1])
            fill(agents.counts[:, SAMPLES.value], np.diff(local.offsets))
            shrink = 2 * local.l2_penalties
        else:
            fill(samples.features, local.anchors)
        fill(self._edges.neighbors, edges.neighbors)
        fill(self._edges.shares, edges.weights / np.repeat(edges.degrees, edges.counts))
        fill(agents.places[:, EDGE.value], edges.offsets[:-1])
        fill(agents.counts[:, DEGREE.value], edges.counts)
        fill(agents.counts[:, NUMBER.value], rule.ids)
        fill(agents.steps, np.column_stack([rule.step_sizes, rule.pulls, shrink]))
        fill(agents.models, start.models)
        fill(agents.ticks, start.next_ticks)
        fill(agents.updates, start.updates)
        if rule.noise is not None:
            assert start.tail_sums is not None
            fill(noise.multipliers, rule.noise.multipliers)
            fill(noise.plans, rule.noise.schedule.rows)
            fill(noise.sensitivities, rule.noise.sensitivities)
            fill(noise.tail_sums, start.tail_sums)
            clip, norm = rule.noise.clip, rule.noise.norm
            write_bounds(samples.bounds, samples.features, clip, norm, self._form.FEATURES)

    @property
    def _programs(self) -> int:
        """How many fire at the same time; one under the interpreter, which runs one after the other."""
        if self._device == "cpu":
            return 1
        return self._tuning.programs * torch.cuda.get_device_properties(0).multi_processor_count

    def _settings_for(self, barrier: int) -> torch.Tensor:
        """The kernels read these from memory; as arguments they would be compiled in."""
        noise = self._descent.noise
        plan = (0, 0, 0) if noise is None else (noise.n_before, noise.tail_start, noise.n_updates)
        numbers = [int(self.seed.astype(np.int64)), barrier, min(self.settings.limit, INT32_MAX), *plan]
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)

    def _launch_for_all(self, kernel: Any, *arguments: Any) -> None:
        """With a program for every AGENTS_A_PROGRAM agents."""
        programs = -(-self._descent.n_agents // AGENTS_A_PROGRAM)
        kernel[(programs,)](*arguments, RECORD=self._form.RECORD, BLOCK=AGENTS_A_PROGRAM, num_warps=1)

    def tune(self, **changed: int) -> None:
        """Other values of Tuning, for measurements."""
        self._tuning = self._tuning._replace(**changed)

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        """Do all ticks up to `until`; a GPU knows no sweeps, and does not stop before."""
        status = self.status(until)
        while status.next_tick <= min(until, NEVER - 1):
            barrier = min(until, NEVER - 1, status.next_tick + self._tuning.units * TIME_UNIT)
            self._done += self._fire_up_to(barrier, status.next_tick)
            status = self.status(until)
        self._shown = None
        return status

    def _fire_up_to(self, barrier: int, next_tick: int) -> int:
        """Do all ticks up to the barrier, or an earlier one if the queue is too short; returns how many."""
        agents, queue, n_agents = self._agents, self._queue, self._descent.n_agents
        while True:
            settings = self._settings_for(barrier)
            n_fires = torch.zeros(1, dtype=torch.int64, device=self._device)
            self._launch_for_all(count_fires, agents, settings, n_agents, n_fires)
            count = int(n_fires)
            if count <= len(queue.agents):
                break
            barrier = next_tick + (barrier - next_tick) // 2
        ready = torch.nonzero((agents.earlier == 0) & (agents.ticks <= barrier)).ravel()
        queue.agents[:count] = -1
        queue.agents[: len(ready)] = ready
        queue.counters[HEAD.value], queue.counters[TAIL.value] = 0, len(ready)
        tuning = self._tuning
        launch: Any = fire
        launch[(self._programs,)](
            self._samples,
            self._edges,
            agents,
            self._noise,
            queue,
            settings,
            n_fires,
            **self._form._asdict(),
            ROWS=tuning.rows,
            NEIGHBORS=tuning.neighbors,
            CONCURRENT=self._device != "cpu",
            num_warps=1,
            maxnreg=tuning.registers,
        )
        return count

    def status(self, until: int) -> Status:
        """The clocks are looked at where they are."""
        next_tick = int(self._agents.ticks.min())
        return Status(next_tick > until, self._done, next_tick)

    @property
    def models(self) -> NDArray[Any]:
        """A copy, kept until the run goes on."""
        if self._shown is None:
            self._shown = fetch(self._agents.models, self._form.SIZE)
        return self._shown

    @property
    def updates(self) -> NDArray[np.int64]:
        return self._agents.updates.cpu().numpy().astype(np.int64)

    @property
    def next_ticks(self) -> NDArray[np.int64]:
        return self._agents.ticks.cpu().numpy()

    def vectors_sent(self, until: int) -> int:
        return models_sent(self._descent, self.updates, self.table, self.seed, until)

    def _tail_sums(self) -> NDArray[np.float64] | None:
        return None if self._descent.noise is None else self._noise.tail_sums.cpu().numpy()

    def state(self) -> dict[str, NDArray[Any]]:
        arrays = self.models, self.next_ticks, self.updates, None, self._tail_sums()
        return DescentState(*arrays).to_arrays()

    def shown_models(self) -> NDArray[Any]:
        """In a private run, the averages of the agents' later releases."""
        noise, tail_sums = self._descent.noise, self._tail_sums()
        if noise is None or tail_sums is None:
            return self.models
        return tail_averages(self.models, self.updates, noise.tail_start, tail_sums)


def _refuse_unusable(settings: RunSettings) -> None:
    """Options that mean something on other engines."""
    if not settings.conditions.are_ideal:
        raise SimulationError(
            "engine 'gpu' runs the ideal network only; use engine='cpu' for delays, losses and absences"
        )


def write_bounds(
    bounds: torch.Tensor, features: torch.Tensor, clip: float, norm: Norm, n_features: int
) -> None:
    """How large the slope of each sample may be, as flockwise.engine.cpu.descent.slope_bounds has it."""
    rounding = 2 * (n_features + 8) * torch.finfo(features.dtype).eps
    for rows in pieces(len(features)):
        lengths = torch.linalg.vector_norm(features[rows].double(), ord=1 if norm == "l1" else 2, dim=1)
        largest = torch.where(lengths > 0, clip * (1 - rounding) / lengths, 0.0)
        bounds[rows] = largest.clamp(max=torch.finfo(features.dtype).max)
