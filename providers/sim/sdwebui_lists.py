"""Three generations of the WebUI, as data: which samplers and schedules each has, and how it takes a name.

Source: the provider sheet of 2026-11-30. May not know HTTP or jobs. Invariant: no generation ever refuses a name but
the oldest; the others put another in its place and say so nowhere but in `info`.
"""

from __future__ import annotations

from dataclasses import dataclass

_NAMES = (
    *("DPM++ 2M", "DPM++ SDE", "DPM++ 2M SDE", "DPM++ 2M SDE Heun", "DPM++ 2S a", "DPM++ 3M SDE"),
    *("Euler a", "Euler", "LMS", "Heun", "DPM2", "DPM2 a", "DPM fast", "DPM adaptive", "Restart"),
)
_FORGE_ONLY = ("HeunPP2", "IPNDM", "IPNDM_V", "DEIS")
_ENDING = ("DDIM", "DDIM CFG++", "PLMS", "UniPC", "LCM")
_SCHEDULED = ("DPM++ 2M", "DPM++ SDE", "DPM++ 2M SDE", "DPM++ 3M SDE")
_LABELS = (
    *("Automatic", "Uniform", "Karras", "Exponential", "Polyexponential", "SGM Uniform", "KL Optimal"),
    *("Align Your Steps", "Simple", "Normal", "DDIM", "Beta"),
)


@dataclass(frozen=True, slots=True)
class Generation:
    """One version of the server. `labels` empty: the schedule is inside the sampler's name."""

    name: str
    version: str
    samplers: tuple[str, ...]
    labels: tuple[str, ...]
    fastapi_errors: bool = False
    """FastAPI's own errors and a plain text for what broke, not A1111's object."""
    login: str = ""
    """`user:password` of `--api-auth`; empty for none."""

    def taken(self, sampler: str, scheduler: str) -> tuple[str, str] | None:
        """Return the sampler and the schedule that are used for these words; None for a refusal."""
        if not self.labels:
            return (sampler, "") if sampler in self.samplers else None
        name, label = sampler, self._label(scheduler)
        for ending in self.labels:
            # "DPM++ 2M Karras" of older days is taken apart.
            if name not in self.samplers and name.endswith(f" {ending}"):
                name, label = name.removesuffix(f" {ending}"), ending
        return (name, label) if name in self.samplers else (self.samplers[0], label)

    def _label(self, scheduler: str) -> str:
        """A wrong case is as good as no schedule."""
        by_name = {label.lower().replace(" ", "_"): label for label in self.labels}
        return scheduler if scheduler in self.labels else by_name.get(scheduler, self.labels[0])

    def sampler_list(self) -> list[dict[str, object]]:
        """Return the answer of GET /samplers."""
        return [
            {"name": name, "aliases": ["k_" + name.lower().replace(" ", "_").replace("++", "pp")], "options": {}}
            for name in self.samplers
        ]

    def scheduler_list(self) -> list[dict[str, object]]:
        """Return the answer of GET /schedulers."""
        return [
            {
                "name": label.lower().replace(" ", "_"),
                "label": label,
                "aliases": None,
                "default_rho": 7.0 if label == "Karras" else -1.0,
                "need_inner_model": False,
            }
            for label in self.labels
        ]


_OLD = (*_NAMES, *(f"{name} {label}" for name in _SCHEDULED for label in ("Karras", "Exponential")), *_ENDING[:1])
NEW = Generation("", "v1.10.1", (*_NAMES, *_ENDING), _LABELS)
GENERATIONS = (
    NEW,
    Generation("forge", "f2.0.1", (*_NAMES, *_FORGE_ONLY, *_ENDING, "DDPM"), _LABELS, fastapi_errors=True),
    Generation("v18", "v1.8.0", _OLD, ()),
    Generation("locked", "v1.10.1", NEW.samplers, NEW.labels, login="operator:let-me-in"),
)
"""By the path in front of `/sdapi/v1`; the newest has none."""
