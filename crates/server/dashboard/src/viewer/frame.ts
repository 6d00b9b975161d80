// What a frame of the dashboard shares with the page around it: the colours, the team that an admin acts for, and the session.
import { actFor, whenLoggedOut } from "../api/client";
import { show } from "../ui/theme";

actFor(new URLSearchParams(location.search).get("team") ?? undefined);
whenLoggedOut(() => parent.location.reload());
show();
addEventListener("storage", show);
