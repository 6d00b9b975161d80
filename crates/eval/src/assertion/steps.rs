//! The steps of an agent, read from the spans of a trace: which tools it called, with what, and which commands it ran.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Value, json};

use super::pattern;
use crate::model::Object;
use crate::traces::{Span, Trace};

/// The attributes that name a tool, the first that is there before the others.
const TOOL_NAMES: &[&str] = &[
    "tool.name",
    "tool_name",
    "tool",
    "function.name",
    "function_name",
    "ai.toolCall.name",
    "gen_ai.tool.name",
    "agent.tool_name",
    "agent.tool",
    "agent.toolName",
    "codex.mcp.tool",
];

/// The attributes that have the arguments of a tool.
const TOOL_ARGUMENTS: &[&str] = &[
    "tool.args",
    "tool.arguments",
    "tool.input",
    "tool_args",
    "tool_arguments",
    "tool_input",
    "function.args",
    "function.arguments",
    "function.input",
    "function_args",
    "function_arguments",
    "ai.toolCall.args",
    "ai.toolCall.arguments",
    "ai.toolCall.input",
    "gen_ai.tool.args",
    "gen_ai.tool.arguments",
    "gen_ai.tool.input",
    "gen_ai.tool.call.args",
    "gen_ai.tool.call.arguments",
    "agent.tool.args",
    "agent.tool.arguments",
    "agent.tool.input",
    "codex.mcp.args",
    "codex.mcp.arguments",
    "codex.mcp.input",
    "args",
    "arguments",
    "input",
];

const COMMANDS: &[&str] = &["codex.command", "command", "command.name", "command_name"];
const SEARCHES: &[&str] = &["codex.search.query", "search.query", "search_query"];
/// Tools whose calls count as commands.
const COMMAND_TOOLS: &[&str] = &["exec_command", "local_shell", "shell"];

/// The kinds of steps, as suites name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    Tool,
    Command,
    Search,
    Reasoning,
    Message,
    Span,
}

impl StepKind {
    /// Returns the name in suites.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Command => "command",
            Self::Search => "search",
            Self::Reasoning => "reasoning",
            Self::Message => "message",
            Self::Span => "span",
        }
    }
}

/// A step.
#[derive(Debug)]
pub struct Step<'a> {
    pub kind: StepKind,
    pub name: String,
    /// The arguments of a tool.
    pub arguments: Option<Value>,
    /// The names by which patterns find the step.
    aliases: Vec<String>,
    span: &'a Span,
}

impl Step<'_> {
    /// Whether one of the step's names fits a pattern.
    pub fn fits(&self, wanted: &str) -> bool {
        self.aliases.iter().any(|alias| pattern::matches(wanted, alias))
    }

    /// Returns the kind and the name, for reasons.
    pub fn shown(&self) -> String {
        format!("{}:{}", self.kind.name(), self.name)
    }
}

/// Expressions over the names of spans and attributes.
struct Expressions {
    named_tool: Regex,
    tool: Regex,
    tool_result: Regex,
    arguments: Regex,
    no_arguments: Regex,
    command_result: Regex,
    search_span: Regex,
    search_attribute: Regex,
    reasoning: Regex,
}

/// Returns the expressions; nothing if they cannot be compiled, which a test rules out.
fn expressions() -> Option<&'static Expressions> {
    static EXPRESSIONS: OnceLock<Option<Expressions>> = OnceLock::new();
    let compile = || {
        let of = |text: &str| Regex::new(text).ok();
        Some(Expressions {
            named_tool: of(r"(?i)tool.?name|function.?name")?,
            tool: of(r"(?i)(^|[._])tool($|[._])")?,
            tool_result: of(r"(?i)result|output|definition")?,
            arguments: of(r"(?i)(^|[._])(arguments|args|input)($|[._])")?,
            no_arguments: of(r"(?i)result|output|error|status")?,
            command_result: of(r"(?i)output|result")?,
            search_span: of(r"(?i)(^|[\s._:/-])(search|find|lookup|retriev(?:e|al))($|[\s._:/-])")?,
            search_attribute: of(r"(?i)(^|[._])(search|lookup|retriev(?:e|al))($|[._])")?,
            reasoning: of(r"(?i)^reasoning([_\s]|$)")?,
        })
    };
    EXPRESSIONS.get_or_init(compile).as_ref()
}

/// Returns the steps in the order in which they began.
pub fn steps(trace: &Trace) -> Vec<Step<'_>> {
    let command_tools: Vec<String> =
        COMMAND_TOOLS.iter().copied().chain(trace.command_tools()).map(str::to_lowercase).collect();
    let mut spans: Vec<&Span> = trace.spans.iter().collect();
    let end = |span: &Span| span.end_time.unwrap_or(span.start_time);
    spans.sort_by(|a, b| a.start_time.total_cmp(&b.start_time).then(end(a).total_cmp(&end(b))));
    let Some(expressions) = expressions() else { return Vec::new() };
    spans
        .into_iter()
        .map(|span| Reading { span, expressions, command_tools: &command_tools }.step())
        .collect()
}

/// One span, and what it is read with.
struct Reading<'a, 'r> {
    span: &'a Span,
    expressions: &'r Expressions,
    command_tools: &'r [String],
}

impl<'a> Reading<'a, '_> {
    fn step(&self) -> Step<'a> {
        let tool = self.tool();
        let runs_commands =
            tool.as_ref().is_some_and(|tool| self.command_tools.contains(&tool.trim().to_lowercase()));
        let arguments = tool.as_ref().and_then(|_| self.arguments());
        let command = self.command(arguments.as_ref().filter(|_| runs_commands));
        let mut aliases = vec![self.span.name.clone()];
        let (kind, name) = match (tool, command, self.search()) {
            (Some(tool), Some(command), _) if runs_commands => {
                aliases.extend([command.clone(), tool]);
                aliases.extend(executable(&command));
                (StepKind::Command, command)
            }
            (Some(tool), _, _) => (StepKind::Tool, tool),
            (None, Some(command), _) => {
                aliases.extend(executable(&command));
                (StepKind::Command, command)
            }
            (None, None, Some(query)) => (StepKind::Search, query),
            (None, None, None) if self.is_reasoning() => {
                aliases.push("reasoning".to_owned());
                (StepKind::Reasoning, self.span.name.clone())
            }
            (None, None, None) if self.is_message() => {
                aliases.push("message".to_owned());
                (StepKind::Message, self.span.name.clone())
            }
            (None, None, None) => (StepKind::Span, self.span.name.clone()),
        };
        aliases.push(name.clone());
        Step { kind, name, arguments, aliases, span: self.span }
    }

    /// Returns the first of these attributes that is a text.
    fn first(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| text_of(self.span.attributes.get(*name)?)).map(str::to_owned)
    }

    fn texts(&self) -> impl Iterator<Item = (&String, &str)> {
        self.span.attributes.iter().filter_map(|(name, value)| Some((name, text_of(value)?)))
    }

    fn tool(&self) -> Option<String> {
        let Expressions { named_tool, tool, tool_result, .. } = self.expressions;
        let is_structure = |text: &str| {
            text.starts_with(['[', '{'])
                && matches!(serde_json::from_str(text), Ok(Value::Array(_) | Value::Object(_)))
        };
        let names_a_tool =
            |name: &str| named_tool.is_match(name) || tool.is_match(name) && !tool_result.is_match(name);
        let other = || self.texts().find(|(name, text)| !is_structure(text) && names_a_tool(name));
        self.first(TOOL_NAMES).or_else(|| other().map(|(_, text)| text.to_owned())).or_else(|| {
            let name = self.span.name.strip_prefix("mcp ")?;
            let tool = name.rsplit_once('/')?.1;
            (!tool.is_empty()).then(|| tool.trim().to_owned())
        })
    }

    fn arguments(&self) -> Option<Value> {
        let Expressions { arguments, no_arguments, .. } = self.expressions;
        let known = TOOL_ARGUMENTS.iter().find_map(|name| structured(self.span.attributes.get(*name)?));
        let is_one = |name: &str| arguments.is_match(name) && !no_arguments.is_match(name);
        let mut others = self.span.attributes.iter().filter(|(name, _)| is_one(name));
        known.or_else(|| others.find_map(|(_, value)| structured(value)))
    }

    /// Returns the command that a span ran, which for tools that run commands is among their arguments.
    fn command(&self, arguments: Option<&Value>) -> Option<String> {
        let result = &self.expressions.command_result;
        let is_one = |name: &str| name.to_lowercase().contains("command") && !result.is_match(name);
        let other = || self.texts().find(|(name, _)| is_one(name)).map(|(_, text)| text.to_owned());
        let ran = || {
            let keys = [("cmd", " "), ("command", " "), ("commands", "; ")];
            let (value, separator) =
                keys.iter().find_map(|(key, with)| Some((arguments?.get(key)?, with)))?;
            let part =
                |part: &Value| part.as_str().map_or_else(|| part.to_string(), |text| text.trim().to_owned());
            let joined = match value {
                Value::String(text) => text.trim().to_owned(),
                Value::Array(parts) => {
                    parts.iter().map(part).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(separator)
                }
                _ => String::new(),
            };
            (!joined.is_empty()).then_some(joined)
        };
        let named = || self.span.name.strip_prefix("exec ").map(|rest| rest.trim().to_owned());
        self.first(COMMANDS).or_else(other).or_else(ran).or_else(named)
    }

    fn search(&self) -> Option<String> {
        let Expressions { search_span, search_attribute, .. } = self.expressions;
        let name = &self.span.name;
        let searches = || {
            let attribute = |name: &String| name != "query" && search_attribute.is_match(name);
            search_span.is_match(name) || self.span.attributes.keys().any(attribute)
        };
        let named = || {
            let rest = name.strip_prefix("search ")?;
            let rest = rest.strip_prefix('"').unwrap_or(rest);
            Some(rest.strip_suffix('"').unwrap_or(rest).trim().to_owned())
        };
        self.first(SEARCHES)
            .or_else(|| self.first(&["query"]).filter(|_| searches()))
            .or_else(named)
            .filter(|query| !query.is_empty())
    }

    fn item_type(&self) -> Option<&str> {
        self.span.attributes.get("codex.item.type").and_then(Value::as_str)
    }

    fn is_reasoning(&self) -> bool {
        self.item_type() == Some("reasoning") || self.expressions.reasoning.is_match(&self.span.name)
    }

    fn is_message(&self) -> bool {
        self.item_type() == Some("agent_message")
            || matches!(self.span.name.as_str(), "agent response" | "send input")
    }
}

fn executable(command: &str) -> Option<String> {
    command.split_whitespace().next().map(str::to_owned)
}

fn text_of(value: &Value) -> Option<&str> {
    value.as_str().map(str::trim).filter(|text| !text.is_empty())
}

/// Returns the value of an attribute, which JSON as text stands for.
fn structured(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(_) => {
            let text = text_of(value)?;
            Some(serde_json::from_str(text).unwrap_or_else(|_| json!(text)))
        }
        other => Some(other.clone()),
    }
}

/// Maximum number of steps in the prompt of a grader.
const MAX_STEPS: usize = 24;

/// Returns the steps as JSON for a model that grades, repeated ones once and those in the middle of a long run left out.
pub fn summary(trace: &Trace) -> String {
    let all = steps(trace);
    let mut told: Vec<Object> = Vec::new();
    let facts = |index: usize, step: &Step<'_>| {
        let mut facts = Object::new();
        facts.insert("index".to_owned(), json!(index + 1));
        facts.insert("type".to_owned(), json!(step.kind.name()));
        facts.insert("name".to_owned(), json!(step.name));
        if step.span.name != step.name {
            facts.insert("spanName".to_owned(), json!(step.span.name));
        }
        if let Some(code) = step.span.status_code.filter(|code| *code != 0) {
            let mut status = Object::new();
            status.insert("code".to_owned(), json!(code));
            let message = step.span.status_message.as_ref().filter(|message| !message.is_empty());
            status.extend(message.map(|message| ("message".to_owned(), json!(message))));
            facts.insert("status".to_owned(), Value::Object(status));
        }
        facts
    };
    for (index, step) in all.iter().enumerate() {
        let facts = facts(index, step);
        let is_same = |last: &Object| {
            ["type", "name", "spanName", "status"].iter().all(|key| last.get(*key) == facts.get(*key))
        };
        match told.last_mut().filter(|last| is_same(last)) {
            Some(last) => {
                let count = last.get("collapsedCount").and_then(Value::as_u64).unwrap_or(1);
                last.insert("collapsedCount".to_owned(), json!(count + 1));
            }
            None => told.push(facts),
        }
    }
    let compacted = told.len();
    if compacted > MAX_STEPS {
        let mut omitted = Object::new();
        omitted.insert("omittedCount".to_owned(), json!(compacted - MAX_STEPS));
        told.splice(MAX_STEPS / 2..compacted - MAX_STEPS / 2, [omitted]);
    }
    let summary = json!({
        "traceId": trace.trace_id, "stepCount": all.len(), "compactedStepCount": compacted, "steps": told,
    });
    serde_json::to_string_pretty(&summary).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(spans: &[(&str, Value)]) -> Trace {
        let span = |(at, (name, attributes)): (usize, &(&str, Value))| Span {
            span_id: at.to_string(),
            parent_span_id: None,
            name: (*name).to_owned(),
            // The last begins first.
            start_time: (spans.len() - at) as f64,
            end_time: None,
            attributes: attributes.as_object().cloned().unwrap_or_default(),
            status_code: None,
            status_message: None,
        };
        Trace { spans: spans.iter().enumerate().map(span).collect(), ..Trace::default() }
    }

    #[test]
    fn spans_are_steps_in_the_order_of_their_beginning() {
        let trace = trace(&[
            ("agent response", json!({})),
            ("reasoning", json!({})),
            ("search web", json!({})),
            ("http", json!({"query": "x"})),
            ("db.lookup", json!({"query": "rust"})),
            ("exec ls -l", json!({})),
            ("call", json!({"tool.name": "shell", "tool.args": r#"{"cmd": ["git", "log"]}"#})),
            ("mcp server/weather", json!({})),
            ("call", json!({"my.tool.result": "x", "vendor.tool_name": "fetch", "vendor.args": {"a": 1}})),
        ]);
        let shown: Vec<String> = steps(&trace).iter().map(Step::shown).collect();
        assert_eq!(
            shown,
            [
                "tool:fetch",
                "tool:weather",
                "command:git log",
                "command:ls -l",
                "search:rust",
                "span:http",
                "search:web",
                "reasoning:reasoning",
                "message:agent response",
            ]
        );
        let steps = steps(&trace);
        assert_eq!(steps[0].arguments, Some(json!({"a": 1})));
        assert!(
            steps[2].fits("git") && steps[2].fits("shell") && steps[2].fits("git *") && !steps[2].fits("lo*")
        );
    }

    #[test]
    fn a_summary_tells_repeated_steps_once() {
        let many = trace(&vec![("step", json!({})); 3]);
        let told: Value = serde_json::from_str(&summary(&many)).unwrap();
        assert_eq!((&told["stepCount"], &told["compactedStepCount"]), (&json!(3), &json!(1)));
        assert_eq!(told["steps"][0]["collapsedCount"], 3);
        let names: Vec<(String, Value)> = (0..30).map(|n| (format!("s{n}"), json!({}))).collect();
        let names: Vec<(&str, Value)> =
            names.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let told: Value = serde_json::from_str(&summary(&trace(&names))).unwrap();
        assert_eq!(told["steps"].as_array().map(Vec::len), Some(25));
        assert_eq!(told["steps"][12]["omittedCount"], 6);
    }
}
