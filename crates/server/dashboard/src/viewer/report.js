// The viewer's report of a red team, in a frame of the dashboard.
import "./frame";
import "../../../../viewer/src/page/report.js";
