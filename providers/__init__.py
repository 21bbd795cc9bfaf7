"""Everything across a socket that is not our database. Here: which adapters there are.

The only importer of vendor files. A new vendor is one file and one line in PROVIDERS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from models.checked import suggest
from models.seats import alias, seat_of
from models.settings import Polling, ProviderSettings, Retries, Settings, SettingsError
from providers.ark import Ark
from providers.comfyui import ComfyUI
from providers.dashscope import DashScope
from providers.fal import Fal
from providers.jimeng import Jimeng
from providers.openai import OpenAI
from providers.port import Provider
from providers.replicate import Replicate
from providers.sdwebui import SdWebui


class Factory(Protocol):
    """Makes a provider from its settings and its key, without opening a connection.

    An empty key means that none is needed, or that none is set.
    """

    def __call__(
        self, name: str, settings: ProviderSettings, key: str, *, retries: Retries, polling: Polling
    ) -> Provider:
        """As the class says."""
        ...


PROVIDERS: Mapping[str, Factory] = {
    "ark": Ark,
    "comfyui": ComfyUI,
    "dashscope": DashScope,
    "fal": Fal,
    "jimeng": Jimeng,
    "openai": OpenAI,
    "replicate": Replicate,
    "sdwebui": SdWebui,
}


def catalogue(settings: Settings) -> dict[str, Provider]:
    """Every configured provider by seat (models.seats), disabled ones too: their running tasks go on.

    Its bare name is the seat of its first credential, which has a seat by its own name as well.

    To be called once per process, after the fork. Raises SettingsError naming every unknown adapter
    at once.
    """
    faults = [
        f"providers.{name}.adapter: unknown adapter {one.adapter!r}{suggest(one.adapter, PROVIDERS)}"
        for name, one in settings.providers.items()
        if one.adapter not in PROVIDERS
    ]
    if faults:
        raise SettingsError("\n".join(faults))

    def made(name: str, one: ProviderSettings, credential: str) -> Provider:
        key = settings.env.vendor_keys.get(credential, "")
        return PROVIDERS[one.adapter](name, one, key, retries=settings.retries, polling=settings.polling)

    found: dict[str, Provider] = {}
    for name, one in settings.providers.items():
        for credential in one.credentials or ("",):
            provider = made(name, one, credential)
            found.setdefault(name, provider)
            if credential:
                found[seat_of(name, alias(credential))] = provider
    return found
