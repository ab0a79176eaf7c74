"""Where the wrong elements lie: one sentence and a small picture in ASCII.

The sentence is the point: a tail, a tile or every fourth column names the bug. torch is imported inside the functions.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .elements import unravel

if TYPE_CHECKING:
    import torch

LINES = 8
COLUMNS = 48
FOLD = 32
FINEST = 1 << 20


def picture(mask: torch.Tensor) -> tuple[str, ...]:
    """The reading, the scale and up to 8 lines of up to 48 characters, for a bool mask of wrong elements of any shape.

    Nothing for a mask without any. Dimensions before the last two are added up.
    """
    error_map = ErrorMap(tuple(mask.shape))
    error_map.add(mask.reshape(-1).nonzero().flatten())
    return error_map.lines()


class ErrorMap:
    """Counts of wrong elements by row, column, slice and cell, filled piece by piece from flat indices.

    So no mask of the whole tensor is needed: an axis of more than 2^20 positions is counted in blocks.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.rows, self.cols = (shape[-2], shape[-1]) if len(shape) >= 2 else (1, math.prod(shape))
        self.slices = math.prod(shape[:-2])
        self.total = 0
        self.line = self.rows == 1 or self.cols == 1
        if self.line:
            self.cell = (1, _power_of_two(self.rows * self.cols / (LINES * FOLD)))
        else:
            self.cell = (_power_of_two(self.rows / LINES), _power_of_two(self.cols / COLUMNS))
        self._counts: dict[str, torch.Tensor] = {}

    def add(self, flat: torch.Tensor) -> None:
        """Add wrong elements by their int64 indices into the flattened tensor."""
        if not flat.numel():
            return
        self.total += flat.numel()
        within = flat % (self.rows * self.cols)
        row, col = within // self.cols, within % self.cols
        self._tally("slice", flat // (self.rows * self.cols), self.slices)
        self._tally("row", row, self.rows)
        self._tally("col", col, self.cols)
        down, across = (row * 0, within) if self.line else (row, col)
        width = self._grid()[1]
        self._tally("grid", down // self.cell[0] * width + across // self.cell[1], math.prod(self._grid()), fold=False)

    def lines(self) -> tuple[str, ...]:
        """The reading first, then the scale, then the picture; nothing when no element was added."""
        if not self.total:
            return ()
        if math.prod(self.shape) == 1:
            return ("the only element is wrong",)
        if self.total == math.prod(self.shape):
            return ("every element is wrong",)
        return (self.reading(), self._scale(), *self._drawing())

    def reading(self) -> str:
        """One sentence on where the errors lie."""
        slices = _Positions.of(self._counts["slice"], self.slices)
        rows = _Positions.of(self._counts["row"], self.rows)
        cols = _Positions.of(self._counts["col"], self.cols)
        return _sentence(self, slices, rows, cols) + self._slices(slices)

    def _slices(self, slices: _Positions) -> str:
        if self.slices == 1:
            return ""
        if slices.count == 1 and slices.block == 1:
            return f", in slice {unravel(slices.low, self.shape[:-2])} only"
        return ", in every slice" if slices.all else f", in {slices.count} of {slices.size} slices"

    def _grid(self) -> tuple[int, int]:
        if self.line:
            return 1, -(-self.rows * self.cols // self.cell[1])
        return -(-self.rows // self.cell[0]), -(-self.cols // self.cell[1])

    def _tally(self, name: str, positions: torch.Tensor, size: int, fold: bool = True) -> None:
        import torch

        block = -(-size // FINEST) if fold else 1
        counts = torch.bincount(positions // block, minlength=-(-size // block))
        self._counts[name] = self._counts[name] + counts if name in self._counts else counts

    def _scale(self) -> str:
        marks = "'#' all wrong, '+' some"
        if self.line:
            return f"{self.cell[1]} a character, {self.cell[1] * FOLD} a line; {marks}"
        return f"rows down, {self.cell[0]} a character; columns across, {self.cell[1]}; {marks}"

    def _drawing(self) -> list[str]:
        width = self._grid()[1]
        counts = self._counts["grid"].tolist()
        layers = int((self._counts["slice"] > 0).sum())
        marks = ""
        for place, count in enumerate(counts):
            down, across = divmod(place, width)
            if self.line:
                area = min(self.cell[1], self.rows * self.cols - across * self.cell[1])
            else:
                area = min(self.cell[0], self.rows - down * self.cell[0]) * min(self.cell[1], self.cols - across * self.cell[1])
            marks += "." if not count else "#" if count == area * layers else "+"
        step = FOLD if self.line else width
        return [marks[i : i + step] for i in range(0, len(marks), step)]


@dataclass(frozen=True)
class _Positions:
    """The positions along one axis that hold errors. ``step`` is their constant distance, 0 where it is not constant."""

    size: int
    block: int
    count: int
    low: int
    high: int
    step: int
    few: tuple[int, ...]

    @classmethod
    def of(cls, counts: torch.Tensor, size: int) -> _Positions:
        found = counts.nonzero().flatten()
        block = -(-size // FINEST)
        gaps = found.diff()
        step = int(gaps[0]) if len(gaps) and bool((gaps == gaps[0]).all()) else 0
        low, high = int(found[0]) * block, min((int(found[-1]) + 1) * block, size) - 1
        return cls(size, block, len(found), low, high, step, tuple(found[:4].tolist()))

    @property
    def all(self) -> bool:
        return self.low == 0 and self.high == self.size - 1 and (self.step == 1 or self.size == 1)

    @property
    def narrow(self) -> bool:
        """Whether the place says something: errors strewn at random nearly fill their own bounding box."""
        return self.count <= (0.75 if self.together else 0.5) * -(-self.size // self.block)

    @property
    def together(self) -> bool:
        return self.step == 1 or self.count == 1

    def text(self, noun: str) -> str | None:
        """``the last 24 columns``, ``every row from 4096 on``; None where nothing short is true."""
        about = "about " if self.block > 1 else ""
        if self.together:
            many = self.high - self.low + 1
            if self.high == self.size - 1:
                last = f"the last {noun}" if many == 1 else f"{about}the last {many} {noun}s"
                return last if many < self.low else f"every {noun} from {about}{self.low} on"
            if self.low == 0:
                return f"the first {noun}" if many == 1 else f"{about}the first {many} {noun}s"
            return f"{noun} {self.low}" if many == 1 else f"{noun}s {about}{self.low} to {self.high}"
        if self.block > 1:
            return None
        if self.count >= 3 and self.step > 1 and self.low < self.step and self.high + self.step >= self.size:
            start = f", from {noun} {self.low}" if self.low else ""
            return f"every {self.step}{_suffix(self.step)} {noun}{start}"
        return f"{noun}s {', '.join(map(str, self.few))}" if self.count <= 4 else None


def _sentence(error_map: ErrorMap, slices: _Positions, rows: _Positions, cols: _Positions) -> str:
    if error_map.line:
        axis, noun = (cols, "element" if len(error_map.shape) < 2 else "column") if error_map.rows == 1 else (rows, "row")
        return _on_one_axis(error_map.total, axis, noun, slices.count)
    if error_map.total == 1:
        return f"one element, at row {rows.low}, column {cols.low}"
    exact = max(slices.block, rows.block, cols.block) == 1
    filled = exact and error_map.total == rows.count * cols.count * slices.count
    row_text, col_text = rows.text("row"), cols.text("column")
    if filled and cols.all and row_text:
        return _whole(row_text, "row")
    if filled and rows.all and col_text:
        return _whole(col_text, "column")
    if filled and rows.together and cols.together:
        return f"one {rows.count}x{cols.count} tile, at row {rows.low}, column {cols.low}"
    places = [text for axis, text in ((rows, row_text), (cols, col_text)) if text and axis.narrow]
    if places:
        return _inside(" and ".join(places))
    return f"scattered: {error_map.total} errors in {rows.count} of {rows.size} rows, {cols.count} of {cols.size} columns"


def _on_one_axis(total: int, axis: _Positions, noun: str, layers: int) -> str:
    text = axis.text(noun)
    if total == 1:
        return f"one {noun}, at {axis.low}" if axis.block == 1 else f"one {noun}, near {axis.low}"
    if axis.block == 1:
        filled = total == axis.count * layers
    else:
        filled = axis.together and total > (axis.high - axis.low + 1 - 2 * axis.block) * layers
    if text and filled and text.startswith("every"):
        return text
    return _inside(text) if text and (filled or axis.narrow) else f"scattered: {total} errors"


def _whole(text: str, noun: str) -> str:
    if text.startswith("every"):
        return text
    return f"whole {text}" if text.startswith(noun) else f"all of {text}"


def _inside(places: str) -> str:
    return "all errors are in " + re.sub(r"\bevery (\w+) from", r"the \1s from", places)


def _power_of_two(least: float) -> int:
    return 1 << max(0, math.ceil(math.log2(least))) if least > 1 else 1


def _suffix(number: int) -> str:
    return "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
