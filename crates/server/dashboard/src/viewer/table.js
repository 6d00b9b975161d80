// The viewer's table of a run, in a frame of the dashboard.
import "./frame";
import "../../../../viewer/src/page/main.js";

export { api } from "./api";
