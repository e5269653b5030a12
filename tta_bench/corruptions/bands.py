"""Mean and PSNR of the built-in corruptions; `tta-bench check` compares against them.

The figures are those of this implementation. Where the published constants do not make an image worse from
one severity to the next, the step is listed in `NOT_STRONGER`.
"""

from __future__ import annotations

SEVERITIES = range(1, 6)
COUNTS = {32: 64, 224: 4}  # side in pixels: how many test images of CIFAR-10, enlarged if need be
MEAN_LEVELS = 1.0  # half the width of the band around a recorded mean
PSNR_DB = 0.25  # half the width of the band around a recorded PSNR

Figures = tuple[float, float]  # change of the mean in grey levels, PSNR in dB over all images

# By corruption and side: severities after which the next one has no lower PSNR.
NOT_STRONGER: dict[tuple[str, int], tuple[int, ...]] = {
    ("glass_blur", 32): (1, 2, 4),  # the same shuffle, and more blur brings values together
    ("glass_blur", 224): (1, 3),  # fewer passes, though each goes farther
    ("motion_blur", 32): (3,),  # the same sigma, only its tail is longer
    ("frost", 32): (3, 4),  # the shares of image and frost sum up to less
    ("frost", 224): (3,),  # the same
    ("fog", 224): (3, 4),  # the fog gets rougher, and about as bright
    ("elastic_transform", 32): (1, 2, 3, 4),  # the affine part shrinks all the way
    ("elastic_transform", 224): (2, 4),  # it shrinks to a tenth, then stays
    ("saturate", 32): (2,),  # from pale to strong colours
    ("saturate", 224): (2,),
}

# By corruption and side, for severities 1 to 5.
BANDS: dict[tuple[str, int], tuple[Figures, ...]] = {
    ("gaussian_noise", 32): ((-0.5, 28.10), (-0.6, 24.65), (-0.7, 22.21), (-0.7, 21.22), (-0.7, 20.36)),
    ("shot_noise", 32): ((-0.6, 30.15), (-0.7, 27.19), (-1.1, 23.35), (-1.2, 22.14), (-1.5, 20.48)),
    ("impulse_noise", 32): ((0.0, 24.98), (0.0, 22.04), (-0.1, 20.33), (0.0, 17.99), (0.0, 16.56)),
    ("defocus_blur", 32): ((-0.5, 41.32), (-0.5, 33.45), (-0.6, 29.85), (-0.5, 27.59), (-0.6, 24.48)),
    ("glass_blur", 32): ((0.4, 20.72), (-0.6, 20.87), (-0.6, 21.59), (0.0, 17.71), (-0.2, 18.32)),
    ("motion_blur", 32): ((0.0, 26.60), (-0.2, 22.97), (-0.1, 21.29), (-0.1, 21.44), (-0.4, 20.22)),
    ("zoom_blur", 32): ((-0.6, 24.54), (-1.1, 23.08), (-1.3, 21.66), (-1.7, 20.44), (-2.0, 19.49)),
    ("snow", 32): ((10.9, 25.39), (23.9, 19.47), (25.5, 18.35), (38.0, 15.35), (50.2, 13.29)),
    ("frost", 32): ((30.0, 18.29), (44.0, 14.90), (48.0, 14.00), (42.8, 14.87), (39.0, 15.15)),
    ("fog", 32): ((-1.8, 25.47), (-3.3, 19.18), (-3.7, 17.28), (-1.2, 15.95), (-6.4, 14.38)),
    ("brightness", 32): ((10.0, 27.74), (20.1, 21.63), (29.7, 18.18), (38.6, 15.81), (54.3, 12.72)),
    ("contrast", 32): ((-0.5, 25.52), (-0.5, 19.50), (-0.5, 17.92), (-0.5, 16.58), (-0.5, 14.90)),
    ("elastic_transform", 32): ((-1.2, 17.03), (-0.7, 17.49), (0.0, 17.83), (-0.9, 18.50), (-0.9, 20.74)),
    ("pixelate", 32): ((0.1, 31.91), (0.1, 29.17), (0.2, 27.86), (0.2, 26.39), (0.4, 24.40)),
    ("jpeg_compression", 32): ((0.0, 30.76), (0.0, 28.94), (-0.1, 28.39), (0.0, 27.86), (-0.1, 27.18)),
    ("speckle_noise", 32): ((-0.7, 29.71), (-1.0, 25.42), (-1.3, 23.90), (-1.5, 21.55), (-2.1, 19.75)),
    ("gaussian_blur", 32): ((-0.5, 41.71), (-0.5, 30.10), (-0.5, 27.98), (-0.5, 26.54), (-0.5, 24.55)),
    ("spatter", 32): ((0.9, 30.92), (2.8, 26.00), (6.6, 22.74), (-3.1, 22.26), (-5.2, 20.13)),
    ("saturate", 32): ((11.0, 22.00), (14.2, 19.79), (-7.9, 25.25), (-20.8, 17.87), (-30.3, 14.91)),
    ("gaussian_noise", 224): ((-0.5, 22.30), (-0.3, 18.97), (0.2, 15.77), (1.3, 13.05), (3.5, 10.61)),
    ("shot_noise", 224): ((-1.2, 21.90), (-2.2, 18.27), (-3.7, 15.34), (-7.3, 12.06), (-11.3, 10.26)),
    ("impulse_noise", 224): ((0.4, 20.15), (1.1, 17.10), (1.4, 15.25), (2.9, 12.51), (4.5, 10.50)),
    ("defocus_blur", 224): ((-0.5, 44.14), (-0.5, 40.17), (-0.5, 34.39), (0.9, 30.78), (0.7, 27.86)),
    ("glass_blur", 224): ((-0.7, 33.80), (-0.8, 34.99), (-0.5, 27.29), (-0.6, 28.52), (-0.5, 27.24)),
    ("motion_blur", 224): ((0.0, 31.88), (-0.2, 27.09), (-0.2, 24.32), (0.8, 21.21), (-0.7, 20.66)),
    ("zoom_blur", 224): ((-0.5, 25.17), (-0.5, 23.07), (-0.6, 21.79), (-0.7, 20.76), (-0.7, 19.93)),
    ("snow", 224): ((38.1, 15.59), (63.3, 11.21), (62.6, 11.18), (75.2, 9.56), (89.9, 8.32)),
    ("frost", 224): ((57.1, 12.55), (69.9, 10.60), (76.1, 9.72), (70.3, 10.29), (72.1, 9.98)),
    ("fog", 224): ((5.7, 15.20), (20.9, 12.35), (24.7, 11.68), (11.5, 12.03), (5.1, 12.05)),
    ("brightness", 224): ((19.3, 21.88), (37.5, 15.98), (53.8, 12.72), (68.4, 10.49), (80.3, 8.97)),
    ("contrast", 224): ((-0.5, 17.92), (-0.5, 16.58), (-0.5, 15.42), (-0.5, 14.40), (-0.5, 13.93)),
    ("elastic_transform", 224): ((-1.4, 16.06), (3.7, 13.17), (-0.3, 25.40), (-1.1, 24.62), (0.1, 24.63)),
    ("pixelate", 224): ((0.4, 40.72), (0.5, 39.74), (0.2, 36.89), (0.1, 34.44), (0.3, 33.10)),
    ("jpeg_compression", 224): ((0.0, 36.93), (0.1, 35.05), (0.0, 33.91), (0.0, 31.51), (0.1, 29.44)),
    ("speckle_noise", 224): ((-1.5, 23.03), (-2.1, 20.65), (-4.3, 16.14), (-5.8, 14.27), (-8.0, 12.37)),
    ("gaussian_blur", 224): ((-0.5, 48.93), (-0.5, 40.71), (-0.5, 35.14), (-0.5, 31.47), (-0.5, 26.98)),
    ("spatter", 224): ((0.8, 32.67), (4.6, 23.86), (7.8, 22.02), (-7.5, 18.35), (-12.6, 15.97)),
    ("saturate", 224): ((13.9, 19.93), (17.9, 17.73), (-15.6, 19.41), (-31.1, 14.25), (-40.4, 12.00)),
}
