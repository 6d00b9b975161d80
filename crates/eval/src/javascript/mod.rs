//! Inline JavaScript in an engine inside the program: no files, no network, with limits of memory, stack and time.
//!
//! Every call has a world of its own, so that no row can see what another left behind.

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

use rquickjs::{CatchResultExt, CaughtError, Context, Ctx, Function, Runtime, function::Args};
use serde_json::Value;

/// The memory that one call may use, in bytes.
const MEMORY_LIMIT: usize = 256 * 1024 * 1024;
const STACK_LIMIT: usize = 512 * 1024;
/// Bytes that calls may leave behind before the engine cleans up.
const GARBAGE: usize = 2 * 1024 * 1024;
const TIME_LIMIT: Duration = Duration::from_secs(10);

thread_local! {
    static RUNTIME: OnceCell<Option<Runtime>> = const { OnceCell::new() };
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Reason why JavaScript gave no value.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JavaScriptError {
    /// The code threw, or is not JavaScript.
    #[error("{0}")]
    Threw(String),
    /// The code exceeded the time limit.
    #[error("the code ran longer than {} s", TIME_LIMIT.as_secs())]
    TimedOut,
    /// The code exceeded the memory limit, or the engine could not start.
    #[error("{0}")]
    Engine(String),
}

/// Calls a function, given as the text of a function expression. The value comes back as JSON; what JSON has no word for
/// is null. A promise is waited for.
///
/// # Errors
/// When the code throws or goes beyond a limit.
pub fn call(function: &str, arguments: &[Value]) -> Result<Value, JavaScriptError> {
    let arguments: Vec<String> = arguments.iter().map(Value::to_string).collect();
    RUNTIME.with(|cell| {
        let Some(runtime) = cell.get_or_init(start) else {
            return Err(JavaScriptError::Engine("failed to start the JavaScript engine".to_owned()));
        };
        let context = Context::full(runtime).map_err(|error| JavaScriptError::Engine(error.to_string()))?;
        DEADLINE.set(Some(Instant::now() + TIME_LIMIT));
        let result = context.with(|ctx| run(&ctx, function, &arguments));
        let late = DEADLINE.take().is_some_and(|deadline| Instant::now() >= deadline);
        if late { Err(JavaScriptError::TimedOut) } else { result }
    })
}

fn start() -> Option<Runtime> {
    let runtime = Runtime::new().ok()?;
    runtime.set_memory_limit(MEMORY_LIMIT);
    runtime.set_max_stack_size(STACK_LIMIT);
    // What a call leaves is collected when a few have been made, and not during each.
    runtime.set_gc_threshold(GARBAGE);
    let late = || DEADLINE.get().is_some_and(|deadline| Instant::now() >= deadline);
    runtime.set_interrupt_handler(Some(Box::new(late)));
    Some(runtime)
}

fn run(ctx: &Ctx<'_>, function: &str, arguments: &[String]) -> Result<Value, JavaScriptError> {
    let wrap = |error: CaughtError<'_>| match error {
        CaughtError::Exception(exception) => {
            let name = exception.get::<_, String>("name").unwrap_or_else(|_| "Error".to_owned());
            match exception.message() {
                Some(message) if !message.is_empty() => JavaScriptError::Threw(format!("{name}: {message}")),
                _ => JavaScriptError::Threw(name),
            }
        }
        CaughtError::Value(value) => {
            let text = value.as_string().and_then(|text| text.to_string().ok());
            JavaScriptError::Threw(text.unwrap_or_else(|| "an exception that is not an Error".to_owned()))
        }
        CaughtError::Error(error) => JavaScriptError::Engine(error.to_string()),
    };
    // Written around the code rather than into it: a comment in its last line must not swallow the end.
    let source = format!(
        "(() => {{ const console = {{ log() {{}}, info() {{}}, warn() {{}}, error() {{}}, debug() {{}} }}; return (\n{function}\n); }})()"
    );
    let function: Function<'_> = ctx.eval(source).catch(ctx).map_err(wrap)?;
    let mut args = Args::new(ctx.clone(), arguments.len());
    for argument in arguments {
        let value = ctx.json_parse(argument.as_str()).catch(ctx).map_err(wrap)?;
        args.push_arg(value).catch(ctx).map_err(wrap)?;
    }
    let mut result: rquickjs::Value<'_> = function.call_arg(args).catch(ctx).map_err(wrap)?;
    if let Some(promise) = result.as_promise() {
        result = promise.finish().catch(ctx).map_err(wrap)?;
    }
    let text = ctx.json_stringify(result).catch(ctx).map_err(wrap)?;
    let Some(text) = text else { return Ok(Value::Null) };
    let text = text.to_string().catch(ctx).map_err(wrap)?;
    serde_json::from_str(&text).map_err(|error| JavaScriptError::Engine(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_come_and_go_as_json() {
        let got = call("(a, b) => ({sum: a + b.x, list: [a]})", &[json!(1), json!({"x": 2})]).unwrap();
        assert_eq!(got, json!({"sum": 3, "list": [1]}));
        assert_eq!(call("() => undefined", &[]).unwrap(), Value::Null);
        assert_eq!(call("async () => 'later'", &[]).unwrap(), json!("later"));
    }

    #[test]
    fn failures_are_told() {
        assert_eq!(
            call("() => { throw new TypeError('no') }", &[]).unwrap_err().to_string(),
            "TypeError: no"
        );
        assert!(call("() => {", &[]).unwrap_err().to_string().starts_with("SyntaxError"));
        assert!(call("() => require('fs')", &[]).unwrap_err().to_string().starts_with("ReferenceError"));
    }

    #[test]
    fn calls_share_nothing() {
        call("() => { globalThis.left = 1; Array.prototype.evil = 1; return 1 }", &[]).unwrap();
        assert_eq!(call("() => typeof left + [].evil", &[]).unwrap(), json!("undefinedundefined"));
    }

    #[test]
    fn memory_and_recursion_have_limits() {
        assert!(call("() => { const a = []; for (;;) a.push('x'.repeat(1e6) + a.length) }", &[]).is_err());
        assert!(call("() => { function f() { return f() + 1 } return f() }", &[]).is_err());
        assert_eq!(call("() => 1", &[]).unwrap(), json!(1));
    }
}
