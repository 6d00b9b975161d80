import { useEffect, useState } from "preact/hooks";

import { withQuery } from "../api/client";
import { useTitle } from "../ui/hooks";

/** A run of the evaluator, or the report of a red team: the page of `sandcove view` in a frame. What it shows is in the address of the dashboard's
 * page, and it reports its title. */
export function Evaluation({ page, team }: { page: "viewer" | "report"; team: string | undefined }) {
  const [title, setTitle] = useState("Evaluations");
  useEffect(() => {
    const changed = (event: Event) => setTitle(String((event as CustomEvent<unknown>).detail));
    addEventListener("frametitle", changed);
    return () => removeEventListener("frametitle", changed);
  }, []);
  useTitle(title);
  return (
    <>
      <h1 class="unseen">{title}</h1>
      <iframe class="viewer" title={page === "viewer" ? "Results of a run" : "Report of a red team"} src={withQuery(`/dashboard/assets/${page}.html`, { team })} />
    </>
  );
}
