"""PURE  Models of servers whose list of models only their operator knows.

A vendor has a table of models. A server that copies a vendor's dialect, or runs on the operator's own GPU, has whatever
was installed. There a model is named `family:name` in the configuration: the family says what it can make, the name
goes to the server as it is. The family alone means the one model that the server has loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from models.contract import ModelBounds


def split(model: str, families: Collection[str]) -> tuple[str, str]:
    """(family, name) of `family:name`; ("", model) for a name outside every family."""
    family, _, name = model.partition(":")
    return (family, name) if family in families else ("", model)


class Families(Mapping[str, ModelBounds]):
    """Bounds by model name: the listed ones, and every `family:name` by its family.

    Iterating gives the listed names and the bare families, since the others are without end. `bare` False: a family
    alone is no model, as where many owners' models share one.
    """

    def __init__(
        self, listed: Mapping[str, ModelBounds], families: Mapping[str, ModelBounds], *, bare: bool = True
    ) -> None:
        self._families = dict(families)
        self._named = {**listed, **families} if bare else dict(listed)

    def __getitem__(self, model: str) -> ModelBounds:
        family, name = split(model, self._families)
        return self._families[family] if family and name else self._named[model]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


class Members(frozenset[str]):
    """A set of model names that also holds every `family:name` whose family it holds."""

    __slots__ = ()

    def __contains__(self, model: object) -> bool:
        known = super().__contains__
        return known(model) or (isinstance(model, str) and ":" in model and known(model.partition(":")[0]))
