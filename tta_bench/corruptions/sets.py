"""Names of the corruptions, their order, groups and column titles: plain data, cheap to import."""

from __future__ import annotations

# Group and column title; ImageNet-C's 15 corruptions come first.
_TITLES: dict[str, tuple[str, str]] = {
    "gaussian_noise": ("Noise", "Gauss."),
    "shot_noise": ("Noise", "Shot"),
    "impulse_noise": ("Noise", "Impul."),
    "defocus_blur": ("Blur", "Defoc."),
    "glass_blur": ("Blur", "Glass"),
    "motion_blur": ("Blur", "Motion"),
    "zoom_blur": ("Blur", "Zoom"),
    "snow": ("Weather", "Snow"),
    "frost": ("Weather", "Frost"),
    "fog": ("Weather", "Fog"),
    "brightness": ("Weather", "Brit."),
    "contrast": ("Digital", "Contr."),
    "elastic_transform": ("Digital", "Elas."),
    "pixelate": ("Digital", "Pix."),
    "jpeg_compression": ("Digital", "JPEG"),
    "speckle_noise": ("Noise", "Speckle"),
    "gaussian_blur": ("Blur", "G.Blur"),
    "spatter": ("Weather", "Spatter"),
    "saturate": ("Digital", "Satur."),
}
GROUPS: dict[str, str] = {name: group for name, (group, _) in _TITLES.items()}
SHORT_NAMES: dict[str, str] = {name: title for name, (_, title) in _TITLES.items()}

IMAGENET_C_15: tuple[str, ...] = tuple(GROUPS)[:15]
HELD_OUT_4: tuple[str, ...] = tuple(GROUPS)[15:]

SETS: dict[str, tuple[str, ...]] = {"imagenet-c-15": IMAGENET_C_15, "held-out-4": HELD_OUT_4}
