//! Conditions on rows.

use std::str::FromStr;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::Value;

use super::ViewError;
use super::scan::Seen;
use crate::model::Failure;
use crate::template::value::to_text;

/// Kinds of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every row.
    #[default]
    All,
    /// An assertion does not hold.
    Failures,
    /// Rows that passed.
    Passes,
    /// There was no verdict.
    Errors,
    /// The columns do not answer the same.
    Different,
    /// Rows that did not pass, and do in a run that is shown beside.
    NewlyFailing,
    /// Somebody marked them.
    Highlights,
    /// Somebody judged them.
    UserRated,
}

impl FromStr for Mode {
    type Err = ViewError;

    fn from_str(text: &str) -> Result<Self, ViewError> {
        Ok(match text {
            "" | "all" => Self::All,
            "failures" => Self::Failures,
            "passes" => Self::Passes,
            "errors" => Self::Errors,
            "different" => Self::Different,
            "newly-failing" => Self::NewlyFailing,
            "highlights" => Self::Highlights,
            "user-rated" => Self::UserRated,
            _ => {
                return Err(ViewError::Invalid(format!(
                    "unknown filterMode `{text}`; use all, failures, passes, errors, different, newly-failing, highlights or user-rated"
                )));
            }
        })
    }
}

/// Text that is looked for, in any case.
#[derive(Debug, Clone)]
pub enum Search {
    /// The text; lowercase.
    Text(String),
    /// A regular expression.
    Pattern(Regex),
}

impl Search {
    /// # Errors
    /// When it is no regular expression and should be one.
    pub fn new(text: &str, pattern: bool) -> Result<Self, ViewError> {
        if !pattern {
            return Ok(Self::Text(text.to_lowercase()));
        }
        let regex = RegexBuilder::new(text).case_insensitive(true).size_limit(1 << 20).build();
        let invalid = |error| ViewError::Invalid(format!("invalid regular expression `{text}`: {error}"));
        regex.map(Self::Pattern).map_err(invalid)
    }

    fn is_in(&self, text: &str) -> bool {
        match self {
            Self::Text(wanted) => text.to_lowercase().contains(wanted),
            Self::Pattern(regex) => regex.is_match(text),
        }
    }
}

/// The operator between a condition and those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Joined {
    /// Both hold.
    #[default]
    And,
    /// One of them holds.
    Or,
}

/// The field that a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum About {
    /// A named score.
    Metric,
    /// The metadata of the test or the answer.
    Metadata,
    /// Red-team runs: who made the test.
    Plugin,
    /// Red-team runs: how it was dressed.
    Strategy,
    /// Red-team runs: how bad a breach is.
    Severity,
    /// Red-team runs: which policy it is of.
    Policy,
}

/// The comparison of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "as they say")]
pub enum Operator {
    Equals,
    NotEquals,
    Contains,
    NotContains,
    Exists,
    IsDefined,
    Eq,
    Neq,
    Gt,
    Gte,
    Lt,
    Lte,
}

/// A condition on rows, in the words of the API.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    #[serde(default, rename = "logicOperator")]
    joined: Joined,
    #[serde(rename = "type")]
    about: About,
    operator: Operator,
    #[serde(default)]
    value: Value,
    #[serde(default)]
    field: Option<String>,
}

impl FromStr for Filter {
    type Err = ViewError;

    fn from_str(text: &str) -> Result<Self, ViewError> {
        serde_json::from_str(text)
            .map_err(|error| ViewError::Invalid(format!("invalid filter `{text}`: {error}")))
    }
}

impl Filter {
    fn holds(&self, row: &Seen) -> bool {
        let key = match self.about {
            About::Metric => return self.metric(row),
            About::Metadata => self.field.as_deref().unwrap_or_default(),
            About::Plugin => "pluginId",
            About::Strategy => "strategyId",
            About::Severity => "severity",
            About::Policy => "policyName",
        };
        let found = row.metadata(key);
        let text = found.map(to_text).unwrap_or_default();
        let wanted = to_text(&self.value);
        match self.operator {
            Operator::Exists | Operator::IsDefined => found.is_some(),
            Operator::Contains => text.contains(&wanted),
            Operator::NotContains => !text.contains(&wanted),
            Operator::NotEquals | Operator::Neq => text != wanted,
            _ => found.is_some() && text == wanted,
        }
    }

    fn metric(&self, row: &Seen) -> bool {
        // Before conditions had fields, the value was the name.
        let name = self.field.clone().unwrap_or_else(|| to_text(&self.value));
        let Some(score) = row.named_scores.get(&name).and_then(Value::as_f64) else { return false };
        let wanted = match &self.value {
            Value::Number(number) => number.as_f64(),
            other => to_text(other).trim().parse().ok(),
        };
        let compare = |holds: fn(f64, f64) -> bool| wanted.is_some_and(|wanted| holds(score, wanted));
        match self.operator {
            Operator::Eq => compare(|a, b| (a - b).abs() < 1e-9),
            Operator::Neq | Operator::NotEquals => compare(|a, b| (a - b).abs() >= 1e-9),
            Operator::Gt => compare(|a, b| a > b),
            Operator::Gte => compare(|a, b| a >= b),
            Operator::Lt => compare(|a, b| a < b),
            Operator::Lte => compare(|a, b| a <= b),
            Operator::Equals if self.field.is_some() => compare(|a, b| (a - b).abs() < 1e-9),
            _ => true,
        }
    }
}

/// The conditions on the rows of a page.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The kind of rows.
    pub mode: Mode,
    /// Text somewhere in them.
    pub search: Option<Search>,
    /// The conditions of filters.
    pub filters: Vec<Filter>,
}

impl Query {
    /// Whether every row is an answer.
    pub fn is_all(&self) -> bool {
        self.mode == Mode::All && self.search.is_none() && self.filters.is_empty()
    }

    /// Whether a row is an answer. What differs between rows is for whoever sees all of a test.
    pub fn holds(&self, row: &Seen) -> bool {
        let of_mode = match self.mode {
            Mode::All | Mode::Different => true,
            Mode::NewlyFailing => !row.success,
            Mode::Passes => row.success,
            Mode::Failures => !row.success && row.failure_reason != Failure::Error,
            Mode::Errors => !row.success && row.failure_reason == Failure::Error,
            Mode::Highlights => row.is_highlighted(),
            Mode::UserRated => row.is_rated(),
        };
        of_mode
            && self.search.as_ref().is_none_or(|search| row.texts().any(|text| search.is_in(&text)))
            && self.conditions(row)
    }

    fn conditions(&self, row: &Seen) -> bool {
        let mut filters = self.filters.iter();
        let Some(first) = filters.next() else { return true };
        filters.fold(first.holds(row), |so_far, filter| match filter.joined {
            Joined::And => so_far && filter.holds(row),
            Joined::Or => so_far || filter.holds(row),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row() -> Seen {
        serde_json::from_value(json!({
            "success": false, "failureReason": 1, "score": 0.5, "vars": {"city": "Zürich"}, "namedScores": {"Speed": 0.5},
            "response": {"output": {"a": "<b>"}}, "metadata": {"kind": "hard"}, "testCase": {"metadata": {"area": "north"}},
            "gradingResult": {"reason": "too slow", "comment": "!highlight look", "componentResults": [
                {"pass": false, "reason": "took 9 ms", "assertion": {"type": "human"}}]},
        }))
        .unwrap()
    }

    fn asked(search: &str, pattern: bool) -> Query {
        Query { search: Some(Search::new(search, pattern).unwrap()), ..Query::default() }
    }

    #[test]
    fn text_is_found_everywhere_in_any_case() {
        for text in ["zürich", "ZÜRICH", "<B>", "TOO slow", "9 ms", "look"] {
            assert!(asked(text, false).holds(&row()), "{text}");
        }
        assert!(!asked("absent", false).holds(&row()));
        assert!(asked("^z.rich$", true).holds(&row()));
        assert!(Search::new("(", true).is_err());
    }

    #[test]
    fn modes_are_told_apart() {
        let holds = |mode| Query { mode, ..Query::default() }.holds(&row());
        assert!(
            holds(Mode::Failures) && holds(Mode::Highlights) && holds(Mode::UserRated) && holds(Mode::All)
        );
        assert!(!holds(Mode::Passes) && !holds(Mode::Errors));
    }

    #[test]
    fn conditions_are_joined() {
        let filter = |value: Value| value.to_string().parse::<Filter>().unwrap();
        let speed = |operator: &str, value: f64| {
            filter(json!({"type": "metric", "operator": operator, "value": value, "field": "Speed"}))
        };
        let holds = |filters: Vec<Filter>| Query { filters, ..Query::default() }.holds(&row());
        assert!(
            holds(vec![speed("gte", 0.5)]) && holds(vec![speed("lt", 0.6)]) && !holds(vec![speed("gt", 0.5)])
        );
        let kind =
            filter(json!({"type": "metadata", "operator": "contains", "field": "kind", "value": "har"}));
        let area = filter(
            json!({"type": "metadata", "operator": "equals", "field": "area", "value": "south", "logicOperator": "and"}),
        );
        assert!(holds(vec![kind.clone()]) && !holds(vec![kind.clone(), area.clone()]));
        let either = Filter { joined: Joined::Or, ..area };
        assert!(holds(vec![kind, either]));
        assert!("{}".parse::<Filter>().is_err());
    }
}
