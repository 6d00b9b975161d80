// Events in words.

import { duration, time } from "./format";

/** Data of an event, as the API has it (contract of webhooks). Texts in it may be of strangers. */
export type EventData = Record<string, unknown>;

const REASONS: Record<string, string> = {
  request: "by request",
  timeout: "at the end of its session",
  admin: "by an operator",
  orphaned: "its processes were gone",
  unknown: "ended by itself",
};

/** The parts of an event's data that people look for, as one text. */
export function words(data: EventData): string {
  const execution = data["execution"] as { execution_time?: unknown } | undefined;
  const ran = execution?.execution_time;
  const modes = [data["pause_mode"], data["snapshot_mode"], data["start_mode"]];
  const said = [
    typeof data["kill_reason"] === "string" && (REASONS[data["kill_reason"]] ?? data["kill_reason"]),
    typeof ran === "number" && `ran ${duration(ran)}`,
    modes.includes("filesystem") && "files only",
    modes.includes("full") && "with memory",
    typeof data["set_timeout"] === "string" && `ends at ${time(data["set_timeout"])}`,
    data["network_egress"] !== undefined && "network rules changed",
    data["sandbox_metadata"] !== undefined && labels(data["sandbox_metadata"] as Record<string, unknown>),
  ];
  return said.filter(Boolean).join(" · ") || "data";
}

function labels(metadata: Record<string, unknown>): string {
  const text = Object.entries(metadata).map(([name, value]) => `${name}=${String(value)}`).join(" ");
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
