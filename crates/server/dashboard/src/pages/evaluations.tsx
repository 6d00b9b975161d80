import { useTitle } from "../ui/hooks";
import { Page } from "../ui/parts";

/** Evaluations are files of the user who ran them, so their page is a program of that user and no part of this server. */
export function Evaluations() {
  useTitle("Evaluations");
  const address = `http://${location.hostname}:15500/`;
  return (
    <Page title="Evaluations">
      <p>The evaluator has a page of its own. On the machine on which <code>sandcove eval</code> ran, this opens it:</p>
      <pre class="command">sandcove view</pre>
      <p>By default it is at <a href={address} target="_blank" rel="noopener noreferrer">{address}</a>.</p>
    </Page>
  );
}
