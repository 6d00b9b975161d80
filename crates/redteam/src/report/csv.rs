//! The table of vulnerabilities as CSV, with the columns of promptfoo's report.

use super::Report;

/// Returns the table of vulnerabilities.
pub fn csv(report: &Report) -> String {
    let mut out = String::from(
        "Type,Description,Risk Score,Complexity,Successful Attacks,Total Tests,ASR,ASR low,ASR high,Severity,OWASP,MITRE,CWE\n",
    );
    for found in &report.vulnerabilities {
        let cells = [
            found.plugin.clone(),
            found.about.clone(),
            format!("{:.2}", found.risk_score),
            found.complexity.to_owned(),
            found.rate.succeeded.to_string(),
            found.rate.total.to_string(),
            format!("{:.4}", found.rate.asr),
            format!("{:.4}", found.rate.low),
            format!("{:.4}", found.rate.high),
            found.severity.name().to_owned(),
            found.owasp.join(" "),
            found.mitre.join(" "),
            found.cwe.join(" "),
        ];
        let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out
}

/// Quotes a cell where it must be, and keeps spreadsheets from running it.
fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '@', '+', '-']) && cell.parse::<f64>().is_err();
    let cell = if is_formula { format!("'{cell}") } else { cell.to_owned() };
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    }
}
