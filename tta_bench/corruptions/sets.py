"""Names of the corruptions, their order, groups and column titles: plain data, cheap to import."""

from __future__ import annotations

GROUPS: dict[str, str] = {
    "gaussian_noise": "Noise",
    "shot_noise": "Noise",
    "impulse_noise": "Noise",
    "defocus_blur": "Blur",
    "glass_blur": "Blur",
    "motion_blur": "Blur",
    "zoom_blur": "Blur",
    "snow": "Weather",
    "frost": "Weather",
    "fog": "Weather",
    "brightness": "Weather",
    "contrast": "Digital",
    "elastic_transform": "Digital",
    "pixelate": "Digital",
    "jpeg_compression": "Digital",
    "speckle_noise": "Noise",
    "gaussian_blur": "Blur",
    "spatter": "Weather",
    "saturate": "Digital",
}

SHORT_NAMES: dict[str, str] = {
    "gaussian_noise": "Gauss.",
    "shot_noise": "Shot",
    "impulse_noise": "Impul.",
    "defocus_blur": "Defoc.",
    "glass_blur": "Glass",
    "motion_blur": "Motion",
    "zoom_blur": "Zoom",
    "snow": "Snow",
    "frost": "Frost",
    "fog": "Fog",
    "brightness": "Brit.",
    "contrast": "Contr.",
    "elastic_transform": "Elas.",
    "pixelate": "Pix.",
    "jpeg_compression": "JPEG",
    "speckle_noise": "Speckle",
    "gaussian_blur": "G.Blur",
    "spatter": "Spatter",
    "saturate": "Satur.",
}

IMAGENET_C_15: tuple[str, ...] = tuple(GROUPS)[:15]
HELD_OUT_4: tuple[str, ...] = tuple(GROUPS)[15:]

SETS: dict[str, tuple[str, ...]] = {"imagenet-c-15": IMAGENET_C_15, "held-out-4": HELD_OUT_4}
