"""Where noise comes from: secure integers for real agents, Philox streams for simulations; never mixed up.

`SecureNoise` draws discrete Laplace or Gaussian noise from the operating system's randomness through
opendp, on the event's grid, and lets opendp certify what the event costs. `SimulatedNoise` is a
function of a public seed: whoever knows the seed can subtract it. It also draws real numbers, whose
low bits betray the sum beneath them. So it protects nobody, and a gate that writes a durable ledger
refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import MissingExtra, PrivacyError
from flockwise.privacy.grid import check_grid
from flockwise.privacy.mechanisms import Mechanism

# With a scale below 2^52 steps, noise of 2^62 steps has a probability below e^(-1000): the sum of noise
# and of at most 2^61 steps of signal (flockwise.privacy.grid) stays within 64 bits.
MAX_STEPS_OF_NOISE: Final = 2.0**52
# opendp rounds its bounds up in the last digits; an error of ours would be far larger.
CERTIFICATE_SLACK: Final = 1e-9


class Noise(Protocol):
    """A source of noise. `draw` gives it in steps of the event's grid, or in its own unit without a grid."""

    def check(self, event: Mechanism) -> None:
        """Refuse an event that this source cannot draw."""
        ...

    def draw(self, event: Mechanism, number: int) -> NDArray[Any]:
        """The noise of release `number`."""
        ...


class SecureNoise:
    """Integer noise that a real agent may use; needs the extra `secure`.

    Its sampler takes a time that depends on what it draws, so the gate draws ahead
    (Gate.prepare) and only adds when the agent wakes.
    """

    def check(self, event: Mechanism) -> None:
        """Refuse real-valued events, and any that opendp does not certify at the cost stated in the plan."""
        if event.grid is None:
            raise PrivacyError(
                f"{event.name}: secure noise is drawn on an integer grid and the event has none; "
                "give it one by grid_for and plan again"
            )
        check_grid(event.grid)
        if event.scale / event.grid > MAX_STEPS_OF_NOISE:
            raise PrivacyError(
                f"{event.name}: noise of scale={event.scale!r} is more than 2^52 steps of "
                f"grid={event.grid!r}; use a coarser grid"
            )
        _sampler(event)

    def draw(self, event: Mechanism, number: int) -> NDArray[np.int64]:
        """Fresh integers every time; the number of the release plays no part."""
        self.check(event)
        return np.array(_sampler(event)([0] * event.dimension), dtype=np.int64)


class SimulatedNoise:
    """Reproducible noise, FOR SIMULATION ONLY: the same for the same seed, agent and number of release."""

    def __init__(self, seed: int, agent: int) -> None:
        self._seed = seed
        self._agent = agent

    def check(self, event: Mechanism) -> None:
        """Refuse events on a grid: their accounting is that of another distribution."""
        if event.grid is not None:
            raise PrivacyError(
                f"{event.name}: simulated noise is real-valued and the event has grid={event.grid!r}; "
                "plan without a grid for a simulation"
            )

    def draw(self, event: Mechanism, number: int) -> NDArray[np.float64]:
        """The noise of this release, whenever it is asked for."""
        self.check(event)
        # Imported here: compiled functions take seconds to load, and a real agent never needs them.
        from flockwise.randomness.noise import standard_noise

        return event.scale * standard_noise(event.sampler(), self._seed, self._agent, number, event.dimension)


@lru_cache(maxsize=256)
def _sampler(event: Mechanism) -> Callable[[list[int]], list[int]]:
    """opendp's mechanism for an event in units of its grid, once it has certified the event's cost."""
    opendp = _opendp()
    law = event.integer_law()
    if event.grid is None or law is None:
        raise PrivacyError(f"{event.name}: there is no integer version of it; use laplace or gaussian")
    make, distance = getattr(opendp.measurements, law.measurement), getattr(opendp.metrics, law.metric)
    integers = opendp.domains.vector_domain(opendp.domains.atom_domain(T="i64"))
    mechanism = make(integers, distance(T="f64"), scale=event.scale / event.grid)
    certified = mechanism.map(event.sensitivity / event.grid)
    if not certified <= law.cost * (1 + CERTIFICATE_SLACK):
        raise PrivacyError(
            f"{event.name}: opendp certifies a cost of {certified!r} where the event states {law.cost!r}: "
            f"{event}"
        )
    return mechanism


@lru_cache(maxsize=1)
def _opendp() -> Any:
    """Imported when it is needed: it is an extra, and slow to load."""
    try:
        import opendp.domains
        import opendp.measurements
        import opendp.metrics
        import opendp.mod
    except ImportError as error:
        raise MissingExtra("secure noise", "secure") from error
    # opendp asks for this word before it lends mechanisms whose proofs are published but not fully vetted.
    opendp.mod.enable_features("contrib")
    return opendp
