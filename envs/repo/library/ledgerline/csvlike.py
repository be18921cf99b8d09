"""Reading and writing delimited text: quotes, doubled quotes, line breaks within a cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence


class MalformedRow(ValueError):
    """The text breaks off or a quote stands where none may; `line` says where the row began."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line


def parse(text: str, delimiter: str = ",") -> Iterator[list[str]]:
    """Yield rows of cells. Blank lines are skipped; quoted cells may hold anything."""
    cells: list[str] = []
    cell: list[str] = []
    quoted = closed = False
    line, began = 1, 1
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if quoted:
            if char == '"':
                if text[position : position + 1] == '"':
                    cell.append('"')
                    position += 1
                else:
                    quoted, closed = False, True
            else:
                line += char == "\n"
                cell.append(char)
        elif char == delimiter:
            cells.append("".join(cell))
            cell, closed = [], False
        elif char == "\n":
            if cells or cell or closed:
                cells.append("".join(cell).rstrip("\r"))
                yield cells
            cells, cell, closed = [], [], False
            line += 1
            began = line
        elif char == '"' and not cell and not closed:
            quoted = True
        elif closed and char != "\r":
            raise MalformedRow(began, "text after a closing quote")
        else:
            cell.append(char)
    if quoted:
        raise MalformedRow(began, "a quote is not closed")
    if cells or cell or closed:
        cells.append("".join(cell).rstrip("\r"))
        yield cells


def quote(cell: str, delimiter: str = ",") -> str:
    """Quote a cell where it needs it."""
    if any(mark in cell for mark in (delimiter, '"', "\n", "\r")) or cell != cell.strip():
        return '"' + cell.replace('"', '""') + '"'
    return cell


def dump(rows: Iterable[Sequence[str]], delimiter: str = ",") -> str:
    """Write rows; the last line ends too."""
    return "".join(delimiter.join(quote(cell, delimiter) for cell in row) + "\n" for row in rows)


def records(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    """Read with the first row as names. Short rows are filled with empty cells, long ones refused."""
    rows = parse(text, delimiter)
    names = next(rows, [])
    if len(set(names)) != len(names):
        raise ValueError("a column is named twice")
    out = []
    for number, row in enumerate(rows, start=2):
        if len(row) > len(names):
            raise MalformedRow(number, f"{len(row)} cells, not {len(names)}")
        out.append({name: row[index] if index < len(row) else "" for index, name in enumerate(names)})
    return out


def from_records(items: Sequence[Mapping[str, object]], names: Sequence[str] | None = None) -> str:
    """Write mappings; names come from the first one unless given. What is missing or None becomes empty."""
    if not items:
        return dump([names]) if names else ""
    titles = list(names) if names is not None else list(items[0])
    rows = [["" if item.get(name) is None else str(item[name]) for name in titles] for item in items]
    return dump([titles, *rows])


def sniff(text: str, choice: str = ",;\t|") -> str:
    """Guess the delimiter: the one that cuts the first lines into equally many, most cells."""
    lines = [line for line in text.splitlines() if line.strip()][:5]
    best, most = choice[0], 1
    for mark in choice:
        counts = {len(next(parse(line, mark), [])) for line in lines}
        if len(counts) == 1 and (cells := counts.pop()) > most:
            best, most = mark, cells
    return best
