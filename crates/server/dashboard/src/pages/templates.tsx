import { useMemo, useState } from "preact/hooks";
import { Link } from "wouter-preact";

import { type Schemas, all, change } from "../api/client";
import { time } from "../ui/format";
import { useLoad, useTitle } from "../ui/hooks";
import { Confirmed, Empty, Failure, Loading, Page, State } from "../ui/parts";
import { type Column, Table } from "../ui/table";

type Template = Schemas["Template"];

export function Templates() {
  useTitle("Templates");
  const [search, setSearch] = useState("");
  const { data, error, reload } = useLoad((signal) => all<Template>("/v2/templates", {}, signal), [], 10_000);
  const rows = useMemo(
    () => (data ?? []).filter((one) => [one.templateID, ...one.names].join(" ").toLowerCase().includes(search.toLowerCase())),
    [data, search],
  );
  const columns: Column<Template>[] = [
    { name: "Name", cell: (row) => <Link href={`/templates/${row.templateID}`}>{row.names[0] ?? row.templateID}</Link>, by: (row) => row.names[0] ?? row.templateID },
    { name: "ID", cell: (row) => <span class="mono">{row.templateID}</span>, by: (row) => row.templateID },
    { name: "Build", cell: (row) => <State value={row.buildStatus} />, by: (row) => row.buildStatus },
    { name: "Resources", cell: (row) => `${row.cpuCount} CPU, ${row.memoryMB} MiB` },
    { name: "Visibility", cell: (row) => (row.public ? "public" : "private"), by: (row) => String(row.public) },
    { name: "Starts", cell: (row) => row.spawnCount, by: (row) => row.spawnCount },
    { name: "Updated", cell: (row) => time(row.updatedAt), by: (row) => row.updatedAt },
    {
      name: "Actions",
      cell: (row) => (
        <span class="row">
          <Link class="button" href={`/new?template=${encodeURIComponent(row.names[0] ?? row.templateID)}`} aria-label={`Start ${row.names[0] ?? row.templateID}`}>Start</Link>
          {!row.isDefault && <Confirmed label="Delete" name={`Delete ${row.names[0] ?? row.templateID}`} danger question={`Delete ${row.names[0] ?? row.templateID} and its builds?`} action={() => change("DELETE", `/templates/${row.templateID}`)} then={reload} />}
        </span>
      ),
    },
  ];
  return (
    <Page title="Templates">
      <div class="filters" role="search">
        <input type="search" aria-label="Search by name or id" placeholder="Search by name or id" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        <span class="quiet" role="status">{data ? `${rows.length} of ${data.length}` : ""}</span>
      </div>
      <Failure text={error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>No templates of this team. <code>sandcove template build</code> builds one from a Dockerfile.</Empty>}
      {data && data.length > 0 && <Table label="Templates" rows={rows} columns={columns} id={(row) => row.templateID} />}
    </Page>
  );
}
