import { useMemo, useState } from "preact/hooks";
import { useLocation } from "wouter-preact";

import { all, change, start as begin } from "../api/client";
import { useAction, useLoad, useTitle } from "../ui/hooks";
import { Confirmed, Copy, Empty, Failure, Loading, Page } from "../ui/parts";
import { type Column, Table } from "../ui/table";

interface Snapshot {
  snapshotID: string;
  names: string[];
}

export function Snapshots() {
  useTitle("Snapshots");
  const [search, setSearch] = useState("");
  const [, navigate] = useLocation();
  const { busy, error: failure, act } = useAction();
  const { data, error, reload } = useLoad((signal) => all<Snapshot>("/snapshots", {}, signal), [], 10_000);
  const rows = useMemo(() => (data ?? []).filter((one) => [one.snapshotID, ...one.names].join(" ").includes(search)), [data, search]);
  const start = (snapshot: Snapshot) =>
    act(async () => {
      const sandbox = await begin({ templateID: snapshot.snapshotID, timeout: 1800 });
      navigate(`/sandboxes/${sandbox.sandboxID}/overview`);
    });
  const columns: Column<Snapshot>[] = [
    { name: "Snapshot", cell: (row) => <><span class="mono">{row.snapshotID}</span> <Copy text={row.snapshotID} /></>, by: (row) => row.snapshotID },
    { name: "Names", cell: (row) => row.names.join(", ") || "–", wide: true },
    {
      name: "Actions",
      cell: (row) => (
        <span class="row">
          <button type="button" disabled={busy} aria-label={`Start ${row.snapshotID}`} onClick={() => void start(row)}>Start</button>
          <Confirmed label="Delete" name={`Delete ${row.snapshotID}`} danger question={`Delete the snapshot ${row.snapshotID}?`} action={() => change("DELETE", `/templates/${encodeURIComponent(row.snapshotID)}`)} then={reload} />
        </span>
      ),
    },
  ];
  return (
    <Page title="Snapshots">
      <div class="filters" role="search">
        <input type="search" aria-label="Search by id or name" placeholder="Search by id or name" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
      </div>
      <Failure text={failure ?? error} />
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty>No snapshots. The page of a sandbox has a button that takes one.</Empty>}
      {data && data.length > 0 && <Table label="Snapshots" rows={rows} columns={columns} id={(row) => row.snapshotID} />}
    </Page>
  );
}
