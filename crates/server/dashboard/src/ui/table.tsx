import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  /** What the column is sorted by. */
  by?: (row: T) => string | number;
  /** Whether the column takes the room that the others leave, and is cut off first. */
  wide?: boolean;
  /** Whether texts of the column are cut off on screens that are not wide. */
  short?: boolean;
}

const ROW = 44;
const BEYOND = 8;

/** A table of any number of rows. Only those in sight are in the document. */
export function Table<T>(props: {
  label: string;
  rows: T[];
  columns: Column<T>[];
  id: (row: T) => string;
  onVisible?: (rows: T[]) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 40]);
  const [sorting, setSorting] = useState<{ column: string; down: boolean }>();
  const column = props.columns.find((one) => one.name === sorting?.column);
  const by = column?.by;
  const rows = by
    ? [...props.rows].sort((a, b) => {
        const [left, right] = [by(a), by(b)];
        return (left < right ? -1 : left > right ? 1 : 0) * (sorting?.down ? -1 : 1);
      })
    : props.rows;
  const place = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW) - BEYOND);
    const last = Math.ceil((element.scrollTop + element.clientHeight) / ROW) + BEYOND;
    setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
  };
  useLayoutEffect(() => {
    place();
    const observer = new ResizeObserver(place);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.min(range[0], Math.max(0, rows.length - 1));
  const shown = rows.slice(first, range[1]);
  const ids = shown.map(props.id).join();
  useLayoutEffect(() => props.onVisible?.(shown), [ids]);
  const below = Math.max(0, rows.length - first - shown.length) * ROW;
  const sort = (name: string) =>
    setSorting((before) => (before?.column !== name ? { column: name, down: false } : before.down ? undefined : { column: name, down: true }));
  return (
    <div class="table" ref={box} onScroll={place} tabIndex={0} role="region" aria-label={props.label}>
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {props.columns.map(({ name, by: sortable, wide }) => (
              <th
                key={name}
                scope="col"
                class={wide ? "wide" : ""}
                aria-sort={sorting?.column === name ? (sorting.down ? "descending" : "ascending") : undefined}
              >
                {sortable ? (
                  <button type="button" class="sort" onClick={() => sort(name)}>
                    {name}
                    <span aria-hidden="true">{sorting?.column === name ? (sorting.down ? " ↓" : " ↑") : ""}</span>
                  </button>
                ) : (
                  name
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr aria-hidden="true" class="spacer"><td colSpan={props.columns.length} style={{ height: `${first * ROW}px` }} /></tr>}
          {shown.map((row, index) => (
            <tr key={props.id(row)} aria-rowindex={first + index + 2}>
              {props.columns.map(({ name, cell, wide, short }) => <td key={name} class={wide ? "wide" : short ? "short" : ""} data-label={name}>{cell(row)}</td>)}
            </tr>
          ))}
          {below > 0 && <tr aria-hidden="true" class="spacer"><td colSpan={props.columns.length} style={{ height: `${below}px` }} /></tr>}
        </tbody>
      </table>
    </div>
  );
}
