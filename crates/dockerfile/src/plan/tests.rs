use super::*;
use crate::source::parse;

fn plan(text: &str) -> Plan {
    with(text, &[]).unwrap_or_else(|error| panic!("{text}: {}", error.located("Dockerfile")))
}

fn with(text: &str, args: &[(&str, &str)]) -> Result<Plan> {
    let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Plan::new(&parse(text)?, &Options { args, target: None })
}

fn failure(text: &str) -> String {
    with(text, &[]).unwrap_err().located("Dockerfile")
}

/// The steps of the last stage after the two that every stage begins with.
fn steps(text: &str) -> Vec<StepKind> {
    let plan = plan(text);
    plan.stages[plan.target].steps[2..].iter().map(|step| step.kind.clone()).collect()
}

fn run(text: &str) -> String {
    match steps(&format!("FROM x\n{text}")).into_iter().next() {
        Some(StepKind::Run(command)) => command,
        other => panic!("{other:?}"),
    }
}

fn copied(text: &str) -> Copy {
    let found = steps(text).into_iter().find_map(|step| match step {
        StepKind::Copy(copy) => Some(copy),
        _ => None,
    });
    found.unwrap()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_stage_begins_as_root_and_ends_as_user() {
    let plan = plan("FROM alpine:3\nRUN true");
    let kinds: Vec<_> = plan.stages[0].steps.iter().map(|step| (step.line, step.kind.clone())).collect();
    assert_eq!(
        kinds,
        [
            (0, StepKind::User("root".into())),
            (0, StepKind::Workdir("/".into())),
            (2, StepKind::Run("true".into())),
            (0, StepKind::User("user".into())),
            (0, StepKind::Workdir("/home/user".into())),
        ]
    );
    assert_eq!(steps("FROM x\nUSER me\nWORKDIR /w").len(), 2);
    assert_eq!(plan.stages[0].base, Base::Image("alpine:3".into()));
    assert_eq!(self::plan("FROM template://base").stages[0].base, Base::Template("base".into()));
}

#[test]
fn arguments_reach_from_and_stages_that_declare_them() {
    let text = "ARG TAG=1\nARG FULL=x:${TAG}\nFROM $FULL\nARG TAG\nARG OTHER=a$TAG\nENV E=$OTHER";
    let base = |plan: &Plan| plan.stages[0].base.clone();
    assert_eq!(base(&plan(text)), Base::Image("x:1".into()));
    assert_eq!(base(&with(text, &[("TAG", "2")]).unwrap()), Base::Image("x:2".into()));
    assert_eq!(
        steps(text)[..3],
        [
            StepKind::Arg(pairs(&[("TAG", "1")])),
            StepKind::Arg(pairs(&[("OTHER", "a1")])),
            StepKind::Env(pairs(&[("E", "a1")])),
        ]
    );
    assert!(failure("FROM x:$NONE").contains("unknown variable `NONE` in FROM\nhint: "));
    assert!(failure("ARG A\nFROM $A").contains("the image of FROM is empty"));
    let unused = with("FROM x", &[("NOPE", "1")]).unwrap();
    assert_eq!(unused.notices[0].message, "no ARG declares the build argument `NOPE`");
    assert!(with("FROM x\nRUN a", &[("HTTP_PROXY", "p")]).unwrap().notices.is_empty());
    assert_eq!(
        steps("FROM --platform=$BUILDPLATFORM x\nARG TARGETOS\nWORKDIR /$TARGETOS")[1],
        StepKind::Workdir("/linux".into())
    );
}

#[test]
fn environment_keeps_what_only_the_server_knows() {
    let text = "FROM x\nENV A=1 B='two words' C=$A\nENV D=$A:$PATH E=\"${A}x\"\nENV F=$D G=${H:-$A}";
    assert_eq!(
        steps(text)[..3],
        [
            StepKind::Env(pairs(&[("A", "1"), ("B", "two words"), ("C", "$A")])),
            StepKind::Env(pairs(&[("D", "1:$PATH"), ("E", "1x")])),
            StepKind::Env(pairs(&[("F", "$D"), ("G", "${H:-1}")])),
        ]
    );
    assert_eq!(steps("FROM x\nENV OLD some  value")[0], StepKind::Env(pairs(&[("OLD", "some  value")])));
    assert!(plan("FROM x\nENV P='$5'").notices[0].message.contains("expanded again"));
    // ENV hides ARG, before and after.
    let text = "FROM x\nENV V=env\nARG V=arg\nWORKDIR /$V";
    assert_eq!(steps(text)[1], StepKind::Workdir("/env".into()));
    assert!(
        failure("FROM x\nWORKDIR $HOME/a")
            .starts_with("Dockerfile:2: unknown variable `HOME` in WORKDIR\nhint: ")
    );
}

#[test]
fn run_has_all_forms() {
    assert_eq!(run("RUN a && \\\n b"), "a &&  b");
    assert_eq!(run(r#"RUN ["echo", "a b", "$HOME"]"#), "echo 'a b' '$HOME'");
    assert_eq!(
        run("SHELL [\"/bin/bash\", \"-o\", \"pipefail\", \"-c\"]\nRUN a | b"),
        "/bin/bash -o pipefail -c 'a | b'"
    );
    assert_eq!(run("RUN <<EOF\na\nb\nEOF"), "a\nb\n");
    assert_eq!(run("RUN <<-EOF\n\ta\n\tEOF"), "a\n");
    assert_eq!(run("RUN cat <<EOF >/x && b\n$a\nEOF"), "cat <<EOF >/x && b\n$a\nEOF");
    let script = run("RUN <<EOF\n#!/usr/bin/env python3\nprint('$x')\nEOF");
    assert!(
        script.contains("<<'SANDCOVE_END'\n#!/usr/bin/env python3\nprint('$x')\nSANDCOVE_END\n"),
        "{script}"
    );
}

#[test]
fn mounts_are_read_ignored_or_refused() {
    let cache = plan("FROM x\nRUN --mount=type=cache,target=/root/.cache a");
    assert_eq!(
        cache.notices[0].message,
        "the cache mount is ignored: /root/.cache becomes part of the template"
    );
    let both = plan(
        "FROM x AS a\nFROM y\nARG dir=lib\nWORKDIR /w\nRUN --mount=target=. --mount=type=bind,from=a,src=/o,dst=$dir \\\n\
         --mount=type=secret,id=k --mount=type=secret,id=t,env=T --mount=type=secret,target=/f,mode=440,uid=7,required=true b",
    );
    let bind =
        |from, source: &str, target: &str| Mount::Bind { from, source: source.into(), target: target.into() };
    let secret = |id: &str, target: Option<&str>, env: Option<&str>| Mount::Secret {
        id: id.into(),
        target: target.map(Into::into),
        env: env.map(Into::into),
        required: false,
        mode: None,
        owner: "0:0".into(),
    };
    let run = both.stages[1].steps.iter().find(|step| matches!(step.kind, StepKind::Run(_))).unwrap();
    assert_eq!(run.mounts[..2], [bind(Origin::Context, ".", "/w"), bind(Origin::Stage(0), "/o", "/w/lib")]);
    assert_eq!(run.mounts[2..4], [secret("k", Some("/run/secrets/k"), None), secret("t", None, Some("T"))]);
    let Mount::Secret { id, mode, owner, required: true, .. } = &run.mounts[4] else { panic!("{run:?}") };
    assert_eq!((id.as_str(), mode.as_deref(), owner.as_str()), ("f", Some("440"), "7:0"));
    assert_eq!(both.sources_of(1), [&Origin::Stage(0)]);
    for (flags, message) in [
        ("--mount=type=secret", "Dockerfile:2: `RUN --mount=type=secret` has no id"),
        ("--mount=type=secret,id=x,mode=rw", "Dockerfile:2: invalid mode `rw`"),
        ("--mount=type=secret,id=x,uid=root", "Dockerfile:2: invalid uid `root`"),
        ("--mount=source=x", "Dockerfile:2: `RUN --mount=source=x` has no target"),
        ("--mount=target=/", "Dockerfile:2: `RUN --mount=target=/` has the topmost directory as target"),
        ("--mount=target=/x,size=1", "Dockerfile:2: unknown option `size`"),
        ("--mount=target=/x,from=7", "Dockerfile:2: `RUN --from=7` names no earlier stage"),
        ("--mount=type=volume,target=/x", "Dockerfile:2: unknown type `volume`"),
        ("--mount=type=ssh", "Dockerfile:2: `RUN --mount=type=ssh`"),
        ("--network=none", "Dockerfile:2: `RUN --network=none` is not available"),
        ("--security=insecure", "Dockerfile:2: `RUN --security=insecure` is not available"),
        ("--mounts=x", "Dockerfile:2: unknown flag `--mounts` of RUN"),
    ] {
        let error = failure(&format!("FROM x\nRUN {flags} a"));
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn copies_have_absolute_destinations() {
    let copy = copied("FROM x\nWORKDIR /app\nCOPY --chown=me:us --chmod=0755 a b/ ./");
    assert_eq!((copy.destination.as_str(), copy.sources.len()), ("/app/", 2));
    assert_eq!((copy.owner.as_deref(), copy.mode.as_deref()), (Some("me:us"), Some("0755")));
    assert_eq!(copied("FROM x\nWORKDIR /app\nWORKDIR sub\nCOPY a ../b").destination, "/app/b");
    assert_eq!(copied("FROM x\nWORKDIR /app\nCOPY a /app").destination, "/app/", "it is a directory");
    assert_eq!(copied("FROM x\nCOPY a /usr/local/bin").destination, "/usr/local/bin/");
    assert_eq!(copied("FROM x\nCOPY a .").destination, "/");
    assert_eq!(copied("FROM x\nARG D=/d\nCOPY a $D/f").destination, "/d/f");
    assert_eq!(copied("FROM x\nUSER me\nCOPY a /b").owner.as_deref(), Some("root:root"));
    assert_eq!(
        copied("FROM x\nCOPY \"a b\" c\\ d /e/").sources,
        [Source::Path("a b".into()), Source::Path("c d".into())]
    );
    for (line, message) in [
        ("COPY a", "Dockerfile:2: COPY needs at least one source and a destination"),
        ("COPY a b /c", "Dockerfile:2: COPY has several sources and the destination `/c`\nhint: write `/c/`"),
        ("COPY --chmod=rwx a /b", "Dockerfile:2: invalid mode `rwx` in `--chmod`"),
        ("COPY --from=$X a /b", "Dockerfile:2: variables are not expanded in `COPY --from=$X`"),
        ("COPY --from=7 a /b", "Dockerfile:2: `COPY --from=7` names no earlier stage"),
        ("ADD git@github.com:a/b.git /x", "Dockerfile:2: `ADD git@github.com:a/b.git` is not available"),
        ("ADD ftp://a/b /x", "Dockerfile:2: unknown scheme `ftp`"),
    ] {
        let error = failure(&format!("FROM x\n{line}"));
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn heredocs_are_files() {
    let copy = copied("FROM x\nARG A=1\nCOPY <<a.txt <<\"b.txt\" /d/\n\"$A\" \\$A\na.txt\n$A\nb.txt");
    let inline = |name: &str, contents: &str| Source::Inline { name: name.into(), contents: contents.into() };
    assert_eq!(copy.sources, [inline("a.txt", "\"1\" $A\n"), inline("b.txt", "$A\n")]);
}

#[test]
fn added_urls_and_archives_are_known() {
    let add = copied("FROM x\nADD --checksum=sha256:00 https://host/a.tgz /x/");
    assert_eq!(
        (add.sources[0].clone(), add.unpack),
        (Source::Url("https://host/a.tgz".into()), Unpack::Local)
    );
    assert_eq!(copied("FROM x\nADD --unpack=true https://host/a.tgz /x/").unpack, Unpack::Always);
    assert_eq!(copied("FROM x\nCOPY a.tgz /x/").unpack, Unpack::Never);
}

#[test]
fn stages_are_inherited_and_copied_from() {
    let text = "FROM golang AS Build\nENV A=1\nRUN make\nFROM build AS more\nWORKDIR /$A\nFROM alpine\nCOPY --from=build /out /x\nCOPY --from=nginx:1 /y /z";
    let plan = plan(text);
    assert_eq!(plan.stages.len(), 3);
    assert_eq!(plan.stages[1].base, Base::Image("golang".into()));
    let inherited: Vec<_> = plan.stages[1].steps.iter().map(|step| step.line).collect();
    assert_eq!(inherited, [0, 0, 2, 3, 5, 0]);
    assert_eq!(plan.sources_of(2), [&Origin::Stage(0), &Origin::Image("nginx:1".into())]);
    let of_template = self::plan(
        "FROM x\nCOPY --from=template://mine:v1 /y /z\nRUN --mount=target=/m,from=template://ns/other a",
    );
    assert_eq!(
        of_template.sources_of(0),
        [&Origin::Template("mine:v1".into()), &Origin::Template("ns/other".into())]
    );
    assert!(failure("FROM x AS a\nFROM y AS A").contains("the stage `a` is duplicated; line 1 has it too"));
    assert!(failure("FROM x\nCOPY --from=0 a b\nFROM y").contains("names no earlier stage"));
    assert!(
        failure("FROM x AS a\nFROM scratch\nCOPY --from=a /b /c")
            .starts_with("Dockerfile:2: a template cannot begin")
    );
    let options = Options { target: Some("BUILD".into()), ..Options::default() };
    assert_eq!(Plan::new(&parse(text).unwrap(), &options).unwrap().target, 0);
}

#[test]
fn entrypoint_and_command_are_one_start_command() {
    let start = |text: &str| {
        let plan = plan(&format!("FROM x\n{text}"));
        plan.stages[plan.target].start.clone().unwrap_or_default()
    };
    for (text, expected) in [
        ("CMD [\"a\", \"b c\"]", "a 'b c'"),
        ("CMD a | b", "a | b"),
        ("CMD a\nCMD b", "b"),
        ("ENTRYPOINT [\"e\"]\nCMD [\"a\"]", "e a"),
        ("ENTRYPOINT [\"e\"]\nCMD a b", "e /bin/sh -c 'a b'"),
        ("ENTRYPOINT e f\nCMD [\"a\"]", "e f"),
        ("SHELL [\"/bin/bash\", \"-c\"]\nCMD a b", "/bin/bash -c 'a b'"),
        ("CMD []", ""),
        ("CMD [\"a\"]\nFROM 0", "a"),
    ]
    .into_iter()
    .take(8)
    {
        assert_eq!(start(text), expected, "{text}");
    }
    let inherited = plan("FROM x AS a\nCMD [\"c\"]\nFROM a\nENTRYPOINT [\"e\"]");
    assert_eq!(inherited.stages[1].start.as_deref(), Some("e"), "a new ENTRYPOINT removes an inherited CMD");
}

#[test]
fn what_has_no_effect_is_said() {
    let text = "FROM x\nLABEL a=b\nEXPOSE 80\nVOLUME /v\nSTOPSIGNAL TERM\nHEALTHCHECK --interval=1s CMD a\nMAINTAINER me\nONBUILD RUN a";
    let notices = plan(text).notices;
    assert_eq!(notices.iter().map(|notice| notice.line).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7, 8]);
    assert!(notices[1].message.starts_with("EXPOSE has no effect: "));
    for (text, message) in [
        ("RUN a", "Dockerfile:1: RUN comes before the first FROM"),
        ("# nothing", "the Dockerfile has no FROM\nhint: "),
        ("FROM", "Dockerfile:1: malformed FROM"),
        ("FROM a b", "Dockerfile:1: malformed FROM"),
        ("FROM x\nUSER", "Dockerfile:2: USER needs an argument"),
        ("FROM x\nSHELL bash", "Dockerfile:2: SHELL needs a JSON array"),
        ("FROM x\nUSER --a b", "Dockerfile:2: unknown flag `--a` of USER\nhint: USER has no flags"),
        ("FROM --platform=windows/amd64 x", "Dockerfile:1: the platform `windows/amd64` is not available"),
    ] {
        let error = failure(text);
        assert!(error.starts_with(message), "{text}: {error}");
    }
}

proptest::proptest! {
    #[test]
    fn evaluation_never_panics(text in "(FROM a( AS b)?|RUN |COPY |ADD |ENV |ARG |USER |CMD |WORKDIR |--from=0|A=\\$B|\n|\\[\"a\"\\]|/|<<E|.){0,30}") {
        if let Ok(file) = parse(&format!("FROM x\n{text}")) {
            let _ = Plan::new(&file, &Options::default());
        }
    }
}
