"""The figure of the theory: bounds, trust regions, a KL without bound, and aligned objectives."""

import numpy as np

from spo.experiments.figures.style import NEGATIVE, POSITIVE, pyplot
from spo.theory.examples import AlignedObjectives, Growth, PolicyPath, Regions, TheoryExamples

THIRD = "#009E73"
"""Bluish green of Okabe and Ito; always dash-dotted too."""
OBJECTIVES = {
    "ppo-clip": (NEGATIVE, "--", r"$f_{\mathrm{ppo}}$: flat from 1 + ε on"),
    "spo": (POSITIVE, "-", r"$f_{\mathrm{spo}}$: highest at 1 + ε alone"),
    "simple": (THIRD, "-.", r"$f_{\mathrm{simple}}$: likewise, blind to |A|"),
}
LEGEND = {"framealpha": 1, "edgecolor": "none"}  # opaque, so that no guide line crosses its words


def draw_theory(data: TheoryExamples):
    """Four panels from the numbers of `spo.theory.examples`; nothing is computed here."""
    figure, axes = pyplot().subplots(2, 2, figsize=(9.2, 7.6))
    _draw_path(axes[0][0], data.path)
    _draw_regions(axes[0][1], data.regions)
    _draw_growth(axes[1][0], data.growth)
    _draw_alignment(axes[1][1], data.objectives)
    figure.tight_layout(h_pad=2.5, w_pad=2.5)
    return figure


def _draw_path(axis, data: PolicyPath) -> None:
    axis.plot(data.step, data.gain, color="black", linewidth=1.8, label="true difference η(π̃) − η(π)")
    for name, bound, colour, style in (("TV", data.tv_bound, POSITIVE, "-"), ("KL", data.kl_bound, NEGATIVE, "--")):
        axis.plot(data.step, bound, style, color=colour, linewidth=1.6, label=f"{name} bound (dot: highest)")
        best = int(np.argmax(bound))
        axis.plot(data.step[best], bound[best], "o", color=colour, markersize=5)
    axis.axvline(0, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    axis.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    axis.set_ylim(data.tv_bound.min(), data.gain.max() * 1.1)
    axis.set_xlabel("t in π̃ ∝ π·exp(t·A)   (t = 0: the old policy)")
    axis.set_ylabel("difference in performance")
    axis.set_title("(a) Theorem 3.2 and eq. 4: two lower bounds")
    axis.legend(loc="upper left", **LEGEND)


def _draw_regions(axis, data: Regions) -> None:
    tv, kl = ("TV", data.tv, data.delta_tv, POSITIVE, "-", 0.18), ("KL", data.kl, data.delta_kl, NEGATIVE, "--", 0.3)
    for label, divergence, delta, colour, style, shade in (tv, kl):
        axis.contourf(data.first, data.second, divergence, [-1, delta], colors=[colour], alpha=shade)
        axis.contour(data.first, data.second, divergence, [delta], colors=[colour], linestyles=[style])
        axis.plot([], [], style, color=colour, label=rf"$\Omega_{{\mathrm{{{label}}}}}$: {label} ≤ {delta:g}")
    axis.plot([0, 1], [1, 0], color="0.4", linewidth=1, label="no third action: KL = ∞")
    axis.plot(*data.old[:2], "o", color="black", markersize=5, label="old policy")
    axis.plot(*data.without[:2], "X", color="black", markersize=7, label=r"in $\Omega_{\mathrm{TV}}$, but KL = ∞")
    axis.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")
    axis.set_xlabel("probability of the first action")
    axis.set_ylabel("probability of the second action")
    axis.set_title(r"(b) Proposition 4.2: $\Omega_{\mathrm{KL}} \subset \Omega_{\mathrm{TV}}$")
    axis.legend(loc="upper right", bbox_to_anchor=(1.04, 1.02), fontsize=8, **LEGEND)


def _draw_growth(axis, data: Growth) -> None:
    axis.semilogx(data.rest, data.kl, "--", color=NEGATIVE, linewidth=1.6, label="KL(π‖π̃)")
    axis.semilogx(data.rest, data.tv, color=POSITIVE, linewidth=1.6, label=f"TV (at most {data.tv.max():.2f})")
    axis.set_xticks([1, 1e-20, 1e-40, 1e-60])
    axis.minorticks_off()
    axis.invert_xaxis()
    axis.set_xlabel("probability left to another action")
    axis.set_ylabel("divergence in this state")
    axis.set_title("(c) Theorem 4.1: r = 1, and KL has no bound")
    axis.legend(loc="upper left", **LEGEND)


def _draw_alignment(axis, data: AlignedObjectives) -> None:
    for name, (colour, style, label) in OBJECTIVES.items():
        curve = data.f[name]
        axis.plot(data.ratio, curve, style, color=colour, linewidth=1.6, label=label)
        highest = np.flatnonzero(curve >= curve.max() - 1e-9)
        axis.plot(data.ratio[highest], curve[highest], color=colour, linewidth=5, alpha=0.3, solid_capstyle="butt")
        axis.plot(data.ratio[highest[0]], curve[highest[0]], "o", color=colour, markersize=5)
    axis.axvline(1 + data.epsilon, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    axis.set_xticks([0.6, 0.8, 1.0, 1.2, 1.4, 1.6], ["0.6", "0.8", "1", "1 + ε", "1.4", "1.6"])
    axis.set_xlabel(f"ratio r   (A = 1, ε = {data.epsilon:g})")
    axis.set_ylabel("objective f")
    axis.set_title("(d) Theorem 5.2: where each objective is highest")
    axis.legend(loc="center right", bbox_to_anchor=(1.0, 0.42), **LEGEND)
