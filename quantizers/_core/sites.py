"""Sites: the modules that a scheme quantises, by their names in `model.net`, and their calibrations."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from tta_bench.api import Calibration, Model


def layer_sites(model: Model) -> dict[str, nn.Module]:
    """All float Linear and Conv2d layers in the order of the network's modules."""
    modules = model.net.named_modules()
    return {name: m for name, m in modules if isinstance(m, nn.Linear | nn.Conv2d)}


def head_site(model: Model) -> str:
    """Name of the classifier."""
    return next(name for name, m in model.net.named_modules() if m is model.classifier)


def replace_module(root: nn.Module, name: str, module: nn.Module) -> None:
    """Replace the module called `name`."""
    parent, _, child = name.rpartition(".")
    setattr(root.get_submodule(parent), child, module)


def site_fields(calibration: Calibration, site: str) -> dict[str, Tensor]:
    """The fields of one site, without its name."""
    start = f"{site}."
    found = {key[len(start) :]: t for key, t in calibration.items() if key.startswith(start)}
    return {field: tensor for field, tensor in found.items() if "." not in field}


def named_fields(site: str, fields: Mapping[str, Tensor]) -> Calibration:
    """Fields under their site's name; contiguous and detached, as safetensors requires."""
    return {f"{site}.{field}": t.detach().contiguous() for field, t in fields.items()}
