// A line over time, with marks for events.

export interface Point {
  at: number;
  value: number;
}

export interface Mark {
  at: number;
  label: string;
}

const WIDTH = 420;
const HEIGHT = 150;
const LEFT = 64;
const BOTTOM = 18;

export function Chart(props: { title: string; points: Point[]; marks: Mark[]; max: number; from: number; to: number; gap?: number; unit: (value: number) => string }) {
  const { points, from, to } = props;
  const max = Math.max(props.max, ...points.map((point) => point.value), 1e-9);
  const x = (at: number) => LEFT + ((at - from) / Math.max(1, to - from)) * (WIDTH - LEFT - 4);
  const y = (value: number) => 6 + (1 - value / max) * (HEIGHT - BOTTOM - 6);
  // A gap of more than a minute is one: the sandbox was paused.
  const gap = props.gap ?? 60_000;
  const long = to - from > 24 * 3_600_000;
  const path = points.map((point, index) => {
    const before = points[index - 1];
    const move = !before || point.at - before.at > gap;
    return `${move ? "M" : "L"}${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`;
  });
  const last = points[points.length - 1];
  const peak = points.reduce((most, point) => Math.max(most, point.value), 0);
  const summary = last ? `now ${props.unit(last.value)}, at most ${props.unit(peak)}` : "no samples";
  return (
    <figure class="chart">
      <figcaption><strong>{props.title}</strong> <span class="quiet">{summary}</span></figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${props.title}: ${summary}`}>
        {[0, 0.5, 1].map((share) => (
          <g key={share} class="grid">
            <line x1={LEFT} x2={WIDTH} y1={y(share * max)} y2={y(share * max)} />
            <text x={LEFT - 6} y={y(share * max) + 4} text-anchor="end">{props.unit(share * max)}</text>
          </g>
        ))}
        {props.marks.filter((mark) => mark.at >= from && mark.at <= to).map((mark) => (
          <g key={`${mark.at}${mark.label}`} class="mark">
            <line x1={x(mark.at)} x2={x(mark.at)} y1={6} y2={HEIGHT - BOTTOM} />
            <text x={x(mark.at) + (x(mark.at) > WIDTH - 80 ? -3 : 3)} y={14} text-anchor={x(mark.at) > WIDTH - 80 ? "end" : "start"}>{mark.label}</text>
            <title>{mark.label}</title>
          </g>
        ))}
        <path d={path.join("")} />
        {[from, to].map((at, index) => (
          <text key={index} class="tick" x={index ? WIDTH - 2 : LEFT} y={HEIGHT - 3} text-anchor={index ? "end" : "start"}>
            {long ? new Date(at).toLocaleDateString() : new Date(at).toLocaleTimeString(undefined, { hour12: false })}
          </text>
        ))}
      </svg>
    </figure>
  );
}
