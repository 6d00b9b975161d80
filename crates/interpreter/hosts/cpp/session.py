# Compiles cells of C++ on top of what earlier ones declared. The last file of the host follows in the same program.
import os
import signal
import subprocess
import sys

HEADER = sys.argv[1]


class Session:
    """The declarations of the cells of a context, on top of which further cells are compiled."""

    def __init__(self, directory):
        self.directory, self.kept, self.spaces = directory, [], 0

    def compile(self, code, cell):
        """Compiles a cell. Returns its library, its parts, and the parts to keep if all of it runs."""
        splitter = Splitter(code, cell)
        splitter.check()
        parts = splitter.parts()
        for part in list(parts):
            if part.is_function and re.match(r"[\w\s:]*?\bmain\s*\(", part.text):
                self.call_main(parts, part, cell)
        kept, removed = list(self.kept), []
        for _ in range(2 + len(self.kept)):
            failure = self.attempt(kept, parts, cell)
            if failure is None:
                return os.path.join(self.directory, f"cell{cell}.so"), parts, kept
            if not self.replace(failure, kept, parts, removed):
                if not removed:
                    break
                # A kept part needs what the removed part declared, under the same name.
                before, part = removed.pop()
                kept.insert(kept.index(before) + 1 if before in kept else 0, part)
        failure = re.sub(r"\b(cell \d+)#\d+\b", r"\1", failure)
        first = re.search(r"^(?:.*: )?(?:fatal )?error: (.*)$", failure, re.M)
        raise Failure("CompileError", first.group(1) if first else "the cell does not compile", failure)

    def call_main(self, parts, part, cell):
        """Compiles a whole program, whose `main` is called."""
        takes = re.search(r"\bmain\s*\(([^)]*)\)", part.text).group(1).strip() not in ("", "void")
        part.text = re.sub(r"\bmain\b", f"sandcove_main_{cell}", part.text, count=1)
        returns = "int" in part.text.partition("sandcove_main")[0].split()
        words = 'static char word[] = "cell", *words[] = {word, nullptr}; ' if takes else ""
        call = f"sandcove_main_{cell}({'1, words' if takes else ''})"
        call = f"if (int status = {call}) throw sandcove::Status{{status}};" if returns else f"{call};"
        parts.append(Part("statement", words + call, cell, part.line))
        parts[-1].number = len(parts) - 1
        part.is_local = True

    def attempt(self, kept, parts, cell):
        """Checks a source: None if it compiles, or else the messages of the compiler."""
        lines = [HEADER, *(part.source() for part in kept)]
        for number, part in enumerate(parts):
            if part.kind in ("statement", "value"):
                body = f"{part.text}\n" if part.kind == "statement" else f"({part.text}\n), sandcove::End{{}};"
                head = f"static char sandcove_{cell}_{number} = ([]() {{ sandcove::at = {number};\n"
                lines.append(f"{head}{part.place()}\n{body}}}(), 0);\n")
            elif part not in kept:
                # The number of the running part says how far the cell came.
                lines.append(f"static char sandcove_{cell}_{number} = (sandcove::at = {number}, 0);\n{part.source()}")
        lines.append(
            'extern "C" {\nextern void (*__start_sandcove_steps[])() __attribute__((weak, visibility("hidden")));\n'
            'extern void (*__stop_sandcove_steps[])() __attribute__((weak, visibility("hidden")));\n'
            f"int sandcove_cell_{cell}() {{ return sandcove::run(__start_sandcove_steps, __stop_sandcove_steps); }}\n"
            "int sandcove_at() { return sandcove::at; }\n"
            "const char* sandcove_value() { return sandcove::has_value ? sandcove::value.c_str() : nullptr; }\n"
            "const char* sandcove_failure() { return sandcove::failure.c_str(); }\n"
            "const char* sandcove_message() { return sandcove::message.c_str(); }\n}\n"
        )
        source, assembly, library = (os.path.join(self.directory, f"cell{cell}.{end}") for end in ("cpp", "s", "so"))
        with open(source, "w", errors="surrogateescape") as file:
            file.write("".join(lines))
        flags = ["-std=gnu++20", "-w", "-O1", "-fPIC", "-fno-diagnostics-color", "-I.", *os.environ.get("CXXFLAGS", "").split()]
        try:
            failure = self.tool("g++", *flags, "-S", source, "-o", assembly)
            if failure is None:
                # The dynamic linker must not run the initialisers: exceptions cannot pass through it.
                with open(assembly, errors="surrogateescape") as file:
                    text = file.read()
                with open(assembly, "w", errors="surrogateescape") as file:
                    file.write(re.sub(r"^\t\.section\t\.init_array[^,\n]*,.*$", '\t.section\tsandcove_steps,"aw"', text, flags=re.M))
                failure = self.tool("g++", "-shared", assembly, "-o", library, *os.environ.get("LDLIBS", "").split())
            return failure
        finally:
            for path in (source, assembly):
                if os.path.exists(path):
                    os.unlink(path)

    def tool(self, *command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=stoppable, env={**os.environ, "LC_ALL": "C"})
        if done.returncode == -signal.SIGINT or b"signal terminated program" in done.stdout:
            raise Failure("Interrupted", "the compiler was interrupted")
        if done.returncode == 0:
            return None
        return done.stdout.decode("utf-8", "replace").replace(self.directory + "/", "") or "the compiler failed"

    def replace(self, failure, kept, parts, removed):
        """Replaces earlier parts by parts of this cell that define them again. False if there are none, so the error is another."""
        again = re.compile(r"redefinition of|conflicting declaration|redeclar|previously (?:defined|declared)|previous (?:definition|declaration)|ambiguating new|conflicts with|is ambiguous")
        blocks = re.split(r"^(?=.*: error: )", failure, flags=re.M)[1:]
        changed = False
        for block in blocks:
            if not again.search(block):
                continue
            places = [(int(cell), int(part)) for cell, part in re.findall(r"^cell (\d+)#(\d+):\d+:\d+: (?:error|note):", block, re.M)]
            named = lambda part: part.kind in ("definition", "declaration") and (part.cell, part.number) in places
            new = next((part for part in parts if named(part)), None)
            old = next((part for part in kept if part not in parts and named(part)), None)
            if new is None or old is None:
                continue
            if new.space is None:
                self.spaces += 1
                new.space = f"sandcove_{self.spaces}"
            at = kept.index(old)
            # Declarations that earlier functions use must precede them; the lifetime of a variable begins in its own cell.
            if new.is_function or new.kind == "declaration":
                kept[at] = new
            else:
                removed.append((kept[at - 1] if at else None, new))
                del kept[at]
            changed = True
        return changed


def stoppable():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
