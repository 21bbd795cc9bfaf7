"""How each vendor is reached in the simulator, and a bench to ask its adapter at: what the contract suite runs over."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import pytest

from models.contract import Kind, resolve
from models.lifecycle import Observation, Working
from models.presets import Presets
from models.settings import (
    Polling,
    ProviderSettings,
    Retries,
)
from providers import PROVIDERS
from providers.port import (
    Accepted,
    Job,
    Provider,
)

_COUNT = itertools.count()
KEY = "sk-contract-0123456789abcdef"


@dataclass(frozen=True)
class Vendor:
    """How one vendor is reached in the simulator, and what is cheap to ask of it.

    `models` has one for each kind that the vendor makes. `group` is how many images are asked for where one is to fail.
    `moderates`: it refuses content; a server of one's own takes every prompt. `key`: the credential in its form.
    `check`: what the history notes of a check that found everything well.
    """

    path: str
    models: dict[Kind, str]
    cheap: dict[Kind, dict[str, object]]
    group: int = 3
    moderates: bool = True
    key: str = KEY
    check: str = "ok"


VENDORS = {
    "ark": Vendor(
        "/ark",
        {Kind.IMAGE: "doubao-seedream-4-0-250828", Kind.VIDEO: "doubao-seedance-1-0-pro-250528"},
        {Kind.IMAGE: {"width": 960, "height": 1024}, Kind.VIDEO: {"resolution": "480p", "duration_s": 2}},
    ),
    "comfyui": Vendor(
        "/comfyui",
        {Kind.IMAGE: "txt2img", Kind.VIDEO: "txt2video"},
        {Kind.IMAGE: {"width": 512, "height": 640}, Kind.VIDEO: {"resolution": "480p", "duration_s": 1}},
        moderates=False,
    ),
    "dashscope": Vendor(
        "/dashscope",
        {Kind.IMAGE: "wan2.2-t2i-flash", Kind.VIDEO: "wan2.5-t2v-preview"},
        {Kind.IMAGE: {"width": 512, "height": 640}, Kind.VIDEO: {"resolution": "480p"}},
    ),
    "fal": Vendor(
        "/fal",
        {Kind.IMAGE: "fal-ai/flux/dev", Kind.VIDEO: "kling-3:fal-ai/kling-video/o3/pro/text-to-video"},
        {Kind.IMAGE: {"width": 512, "height": 640}, Kind.VIDEO: {"duration_s": 3}},
        check="invalid_parameter",  # it has no question but about what is not there
    ),
    "jimeng": Vendor(
        "/jimeng",
        {Kind.IMAGE: "jimeng_t2i_v30", Kind.VIDEO: "jimeng_t2v_v30"},
        {Kind.IMAGE: {"width": 512, "height": 640}, Kind.VIDEO: {"duration_s": 5}},
        group=1,  # a group is billed as the model likes it: never asked for
        key=f"{KEY}:{KEY}",
    ),
    "openai": Vendor(
        "/openai",
        {Kind.IMAGE: "gpt-image-2.6-flare", Kind.VIDEO: "video:sim-video"},
        {Kind.IMAGE: {"width": 512, "height": 640}, Kind.VIDEO: {"resolution": "480p", "duration_s": 1}},
    ),
    "replicate": Vendor(
        "/replicate",
        {
            Kind.IMAGE: "stability-ai/sdxl:7762fd07cf82c948538e41f63f77d685e02b063e37e496e96eefd46c929f9bdc",
            Kind.VIDEO: "bytedance/seedance-1-lite",
        },
        {Kind.IMAGE: {"width": 512, "height": 640}, Kind.VIDEO: {"resolution": "480p", "duration_s": 2}},
        check="invalid_parameter",  # asked about a prediction that there never was
    ),
    "sdwebui": Vendor("/sdwebui", {Kind.IMAGE: "sdxl"}, {Kind.IMAGE: {"width": 512, "height": 640}}, moderates=False),
}


@dataclass(frozen=True)
class Bench:
    """A provider and what a test needs to ask it something."""

    vendor: Vendor
    provider: Provider
    settings: ProviderSettings

    @property
    def kind(self) -> Kind:
        """What the vendor is asked for where it does not matter: one that is waited for, if it has any."""
        return next((kind for kind in self.vendor.models if self.waits(kind)), next(iter(self.vendor.models)))

    def waits(self, kind: Kind) -> bool:
        """Whether a submit of this kind gives a receipt to ask about, not the result itself."""
        return self.vendor.models[kind] not in self.provider.capabilities.synchronous

    def job(self, prompt: str = "a red cup", kind: Kind | None = None, **asked: object) -> Job:
        """A job with these parameters, the others at their defaults."""
        kind = kind or self.kind
        model = self.vendor.models[kind]
        bounds = self.provider.capabilities.models[model]
        # Directives are counted per prompt, so each prompt is used once.
        asked = {"prompt": f"{prompt} {next(_COUNT)}", **self.vendor.cheap[kind], **asked}
        none = Presets.from_tables({})
        found = resolve(kind, asked, bounds, none, strict=False, draw=lambda low, _: low + 7)
        return Job(
            task_id="task_1",
            attempt=1,
            kind=kind,
            model=model,
            effective=found.effective,
            reference=f"ref-{time.monotonic_ns()}",
            claimed_at_s=time.time(),
        )

    def accepted(self, prompt: str = "a red cup", kind: Kind | None = None, **asked: object) -> Accepted:
        """A submit that the vendor takes."""
        outcome = self.provider.submit(self.job(prompt, kind, **asked))
        assert isinstance(outcome, Accepted), outcome
        return outcome

    def receipt(self, prompt: str = "a red cup") -> str:
        """The receipt of a job that is waited for."""
        if not self.waits(self.kind):
            pytest.skip("this vendor answers a submit with the result: there is nothing to ask about")
        return self.accepted(prompt).receipt

    def seen(self, receipt: str) -> Observation:
        """One look at one job."""
        return self.provider.observe([receipt], self.kind)[receipt]

    def done(self, prompt: str = "a red cup", kind: Kind | None = None, **asked: object) -> Observation:
        """What a job came to, at once or after waiting for it."""
        accepted = self.accepted(prompt, kind, **asked)
        return accepted.finished or self.ended(accepted.receipt, kind)

    def ended(self, receipt: str, kind: Kind | None = None) -> Observation:
        """The first observation that is more than "working"; waits for it with a deadline."""
        end = time.monotonic() + 10
        while isinstance(seen := self.provider.observe([receipt], kind or self.kind)[receipt], Working):
            assert time.monotonic() < end, "the simulator did not finish"
        return seen


def made(name: str, url: str) -> Bench:
    vendor = VENDORS[name]
    settings = ProviderSettings(adapter=name, base_url=url + vendor.path, connect_s=1, submit_read_s=3, query_read_s=3)
    provider = PROVIDERS[name](
        name, settings, vendor.key, retries=Retries(reads=0, async_submit=0, sync_submit=0), polling=Polling(round_s=5)
    )
    return Bench(vendor, provider, settings)
