//! The form of a profile, and its compilation for the kernel.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// A system call, by its name and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    /// Name of its number in `libc`: `SYS_` and the name of the call.
    pub(super) name: &'static str,
    /// Number of the call on this architecture.
    pub(super) number: c_long,
}

/// Names one call by its number in `libc`.
macro_rules! call {
    ($name:ident) => {
        $crate::jail::seccomp::profile::Call { name: stringify!($name), number: libc::$name }
    };
}
/// Lists calls by their numbers in `libc`.
macro_rules! calls {
    ($($name:ident),* $(,)?) => { &[$($crate::jail::seccomp::profile::call!($name)),*] };
}
pub(super) use {call, calls};

/// Calls that are allowed, or refused, for one reason and with any arguments.
pub(super) struct Group {
    /// Programs that need the calls; or what a sandbox could do with them, if they are refused.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and tests"))]
    pub(super) reason: &'static str,
    pub(super) calls: &'static [Call],
}

/// A use of one call, by its arguments.
pub(super) struct Rule {
    /// Programs that need this use; or what a sandbox could do with it, if it is refused.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and tests"))]
    pub(super) reason: &'static str,
    pub(super) call: Call,
    /// Conditions that all hold; none for any arguments.
    pub(super) when: &'static [Condition],
}

/// A condition on one argument, by its position. The first two kinds compare the lower half of the register: the kernel
/// reads no more of the arguments they are used for, so that bits set above change nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Condition {
    /// The argument is one of these values.
    OneOf(u8, &'static [u32]),
    /// The argument has the value `.2` in the bits of the mask `.1`.
    Bits(u8, u32, u32),
    /// The argument is a pointer that is not null.
    Pointer(u8),
}

/// Calls that the processes of a jail may make. A call that is not allowed returns "not implemented", so that
/// programs fall back to older calls.
pub(super) struct Profile {
    /// Calls that are allowed, each of which a recorded program makes.
    pub(super) allowed: &'static [Group],
    /// Calls that are allowed although no recorded program makes them.
    pub(super) unrecorded: &'static [Group],
    /// Uses that are allowed, of calls that are in no group.
    pub(super) allowed_if: &'static [Rule],
    /// Uses that return success and have no effect.
    pub(super) answered: &'static [Rule],
    /// Calls that return "not permitted".
    pub(super) refused: &'static [Group],
    /// Uses that return "not permitted", of calls that are allowed otherwise.
    pub(super) refused_if: &'static [Rule],
}

impl Profile {
    /// Compiles the filter that allows what the profile and the rules `more` allow.
    pub(super) fn allows(&self, more: &[Rule]) -> Result<BpfProgram, BackendError> {
        let groups = self.allowed.iter().chain(self.unrecorded);
        let rules = self.allowed_if.iter().chain(more);
        compile(groups, rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
    }

    /// Compiles the filter that answers calls with success.
    pub(super) fn answers(&self) -> Result<BpfProgram, BackendError> {
        compile([], self.answered, SeccompAction::Errno(0), SeccompAction::Allow)
    }

    /// Compiles the filter that refuses what the profile refuses, except for the calls of `but`.
    pub(super) fn refuses(&self, but: &[Rule]) -> Result<BpfProgram, BackendError> {
        let excepted = |call: &Call| but.iter().any(|rule| rule.call == *call);
        let not_permitted = SeccompAction::Errno(libc::EPERM as u32);
        let calls = self.refused.iter().flat_map(|group| group.calls).filter(|call| !excepted(call));
        compile_calls(calls, self.refused_if, not_permitted, SeccompAction::Allow)
    }
}

fn compile<'a>(
    groups: impl IntoIterator<Item = &'a Group>,
    rules: impl IntoIterator<Item = &'a Rule>,
    then: SeccompAction,
    otherwise: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    compile_calls(groups.into_iter().flat_map(|group| group.calls), rules, then, otherwise)
}

fn compile_calls<'a>(
    calls: impl IntoIterator<Item = &'a Call>,
    rules: impl IntoIterator<Item = &'a Rule>,
    then: SeccompAction,
    otherwise: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let (limited, any): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| !rule.when.is_empty());
    let mut chains: BTreeMap<c_long, Vec<SeccompRule>> = BTreeMap::new();
    for rule in limited {
        let chain = chains.entry(rule.call.number).or_default();
        for conditions in alternatives(rule.when)? {
            chain.push(SeccompRule::new(conditions)?);
        }
    }
    // Last: a call without a chain matches with any arguments.
    for call in calls.into_iter().chain(any.iter().map(|rule| &rule.call)) {
        chains.insert(call.number, Vec::new());
    }
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(chains, otherwise, then, architecture)?.try_into()
}

/// Every way to meet all conditions: the kernel's filters know no "one of".
fn alternatives(conditions: &[Condition]) -> Result<Vec<Vec<SeccompCondition>>, BackendError> {
    let mut all = vec![Vec::new()];
    for condition in conditions {
        let choices = condition.choices()?;
        let extended = |begun: &Vec<SeccompCondition>| {
            let extend = |choice: &SeccompCondition| [&begun[..], std::slice::from_ref(choice)].concat();
            choices.iter().map(extend).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(extended).collect();
    }
    Ok(all)
}

impl Condition {
    fn choices(self) -> Result<Vec<SeccompCondition>, BackendError> {
        use SeccompCmpArgLen::{Dword, Qword};
        match self {
            Self::OneOf(argument, values) => values
                .iter()
                .map(|value| SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, (*value).into()))
                .collect(),
            Self::Bits(argument, mask, value) => {
                let operator = SeccompCmpOp::MaskedEq(mask.into());
                Ok(vec![SeccompCondition::new(argument, Dword, operator, value.into())?])
            }
            Self::Pointer(argument) => Ok(vec![SeccompCondition::new(argument, Qword, SeccompCmpOp::Ne, 0)?]),
        }
    }
}
