"""Escapes any text for LaTeX with its default fonts."""

from __future__ import annotations

import re
import unicodedata

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\to$",
    "−": r"$-$",
    "–": "--",
    "—": "---",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\dots{}",
    "⁄": "/",
    "·": r"$\cdot$",
    "°": r"$^\circ$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "∈": r"$\in$",
    "∼": r"$\sim$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "←": r"$\leftarrow$",
    "∂": r"$\partial$",
    "∇": r"$\nabla$",
}
# Greek capitals without a LaTeX command.
LIKE_LATIN = {
    "alpha": "A", "beta": "B", "epsilon": "E", "zeta": "Z", "eta": "H", "iota": "I", "kappa": "K", "mu": "M",
    "nu": "N", "omicron": "O", "rho": "P", "tau": "T", "chi": "X",
}  # fmt: skip
# The Latin-1 letters that pdflatex has in its default fonts.
ACCENTED = frozenset(map(chr, range(0xC0, 0x100))) - frozenset("ÐðÞþ×")


def escape(text: str) -> str:
    """The text escaped for LaTeX; characters that the default fonts lack are replaced."""
    return "".join(map(_escape, " ".join(text.split())))


def _escape(char: str) -> str:
    """One character."""
    if char in SPECIAL:
        return SPECIAL[char]
    if char in ACCENTED or (char.isascii() and char.isprintable()):
        return char
    plain = unicodedata.normalize("NFKD", char)
    if plain != char and not unicodedata.combining(plain[-1]):  # ½ is 1, ⁄ and 2
        text = "".join(map(_escape, plain))
        return {"<super>": f"$^{{{text}}}$", "<sub>": f"$_{{{text}}}$"}.get(_form(char), text)
    plain = plain.encode("ascii", "ignore").decode()
    return "".join(SPECIAL.get(c, c) for c in plain) or _greek(char) or f"[U+{ord(char):04X}]"


def _form(char: str) -> str:
    """The kind of a character's decomposition: `<super>`, `<fraction>`, …"""
    return unicodedata.decomposition(char).split(" ")[0]


def _greek(char: str) -> str:
    """A Greek letter in math mode or, if LaTeX has no command for it, the Latin letter of the same shape."""
    found = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (FINAL )?(\w+)", unicodedata.name(char, ""))
    if found is None:
        return ""
    size, final, name = found[1], found[2], found[3].lower().replace("lamda", "lambda")
    if final:
        return r"$\varsigma$"
    if size == "SMALL":
        return "o" if name == "omicron" else f"$\\{name}$"
    return LIKE_LATIN.get(name) or f"$\\{name.capitalize()}$"
