//! Commands and code run to their end, with all of their output in memory.

use sandcove_wire::interpreter::{Event, ExecutionError, ExecutionRequest, ResultData};

use crate::command::{Command, CommandEvent, CommandExit};
use crate::error::Result;
use crate::sandbox::Sandbox;

/// The output and the end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// Bytes of standard output.
    pub stdout: Vec<u8>,
    /// Bytes of standard error.
    pub stderr: Vec<u8>,
    /// How the command ended.
    pub exit: CommandExit,
}

/// All that an execution of code gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CodeOutput {
    /// Text of standard output.
    pub stdout: String,
    /// Text of standard error.
    pub stderr: String,
    /// Values and displayed things, in their order.
    pub results: Vec<ResultData>,
    /// The exception that ended the code, if one did.
    pub error: Option<ExecutionError>,
    /// Number of the execution in its context; none if the kernel has not taken the code.
    pub execution_count: Option<u64>,
}

impl Sandbox {
    /// Runs a command to its end and returns its output, however much that is: [`run`](Self::run) passes it on as it comes.
    ///
    /// # Errors
    /// If the command cannot be started or the connection breaks. A status other than 0 is no error.
    pub async fn output(&self, command: &Command) -> Result<CommandOutput> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let exit = self
            .run(command, |event| match event {
                CommandEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                CommandEvent::Stderr(bytes) => stderr.extend_from_slice(&bytes),
            })
            .await?;
        Ok(CommandOutput { stdout, stderr, exit })
    }

    /// Runs code to its end and returns its output, however much that is: [`run_code`](Self::run_code) passes it on as it comes.
    ///
    /// # Errors
    /// If the code cannot be started or the connection breaks. An exception in the code is in the output, and no error.
    pub async fn code_output(&self, request: &ExecutionRequest) -> Result<CodeOutput> {
        let mut output = CodeOutput::default();
        self.run_code(request, |event| output.add(event)).await?;
        Ok(output)
    }
}

impl CodeOutput {
    /// The text of the last expression's value, if it has one.
    pub fn text(&self) -> Option<&str> {
        self.results.iter().find(|result| result.is_main_result)?.text.as_ref()?.as_str()
    }

    fn add(&mut self, event: Event) {
        match event {
            Event::NumberOfExecutions { execution_count } => self.execution_count = Some(execution_count),
            Event::Stdout(output) => self.stdout.push_str(&output.text),
            Event::Stderr(output) => self.stderr.push_str(&output.text),
            Event::Result(result) => self.results.push(*result),
            Event::Error(error) => self.error = Some(error),
            Event::Keepalive | Event::EndOfExecution => {}
        }
    }
}
