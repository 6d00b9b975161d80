"""The IPython shell, as a notebook kernel would configure it, speaking through a ``Channel``."""

import builtins
import getpass
import os
import traceback

from IPython import version_info
from IPython.core import page
from IPython.core.autocall import ZMQExitAutocall
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError, UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any, Instance, Type, default
from traitlets.config import Application, Config

from .channel import Channel


def configuration() -> Config:
    """The settings of every kernel's shell."""
    config = Config()
    # IPython 8 writes the name of this scheme with capitals.
    config.InteractiveShell.colors = "NoColor" if version_info < (9,) else "nocolor"
    config.InteractiveShell.banner1 = ""
    config.InteractiveShell.autoindent = False
    # No history file: its writer is a thread, and a warm process must have only one.
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    # By this section libraries (tqdm, for one) distinguish a notebook's kernel from a terminal.
    config.IPKernelApp.parent_appname = "sandcove"
    # Long collections are shown whole.
    config.PlainTextFormatter.max_seq_length = 0
    return config


class KernelDisplayHook(DisplayHook):
    """Sends the value of the last expression."""

    def start_displayhook(self) -> None:
        pass

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict, md_dict=None) -> None:
        self.shell.send_result(format_dict, main=True)

    def finish_displayhook(self) -> None:
        pass


class KernelDisplayPublisher(DisplayPublisher):
    """Sends what ``display`` shows. Updates and clearing are not part of the protocol."""

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs) -> None:
        if not update:
            self.shell.send_result(data, main=False)

    def clear_output(self, wait=False) -> None:
        pass


class Kernel:
    """The value of ``get_ipython().kernel``. Its presence tells pandas, for example, not to fit its output to a terminal."""

    def __init__(self, shell) -> None:
        self.shell = shell

    def do_shutdown(self, restart: bool) -> dict:
        """Ends this process after the cell; the next cell gets a new one."""
        self.shell.leaving = True
        return {"status": "ok", "restart": restart}


class IPKernelApp(Application):
    """The application that notebooks run kernels in: ``Application.instance().kernel`` is how many restart theirs."""

    kernel = Instance(Kernel, allow_none=True)


class ZMQInteractiveShell(InteractiveShell):
    """The shell, one per process: IPython keeps the instance in a class variable. Libraries (rich, for one) recognize the shell
    of a notebook by the name of its class.
    """

    #: `exit()` ends the kernel after the cell; `exit(1)` means, as in notebooks, to keep it.
    exiter = Instance(ZMQExitAutocall)
    keepkernel_on_exit = None
    displayhook_class = Type(KernelDisplayHook)
    display_pub_class = Type(KernelDisplayPublisher)
    channel = Any(None, allow_none=True)
    #: Set by ``exit`` and ``quit``: the process ends after the cell.
    leaving = False
    #: An error of the running cell has been sent.
    failed = False
    kernel = Instance(Kernel)

    @default("kernel")
    def _kernel(self) -> Kernel:
        return Kernel(self)

    def connect(self, channel: Channel) -> None:
        """Sends everything shown from now on to ``channel``."""
        self.channel = channel

    def init_io(self) -> None:
        pass

    def init_hooks(self) -> None:
        super().init_hooks()
        self.set_hook("show_in_pager", page.as_hook(page.display_page), 99)

    def refuse_input(self) -> None:
        """Makes reading input an error instead of a wait, as nobody can type."""

        def refused(name):
            def call(*_arguments, **_keywords):
                raise StdinNotImplementedError(
                    f"{name} was called, but this frontend does not support input requests."
                )

            return call

        builtins.input = refused("raw_input")
        getpass.getpass = refused("getpass")

    @default("exiter")
    def _exiter(self) -> ZMQExitAutocall:
        return ZMQExitAutocall(self)

    def ask_exit(self) -> None:
        self.leaving = not self.keepkernel_on_exit

    def enable_gui(self, gui=None) -> None:
        """Does nothing, as no event loop of a toolkit runs here."""

    def send_result(self, data: dict, *, main: bool) -> None:
        """Sends a MIME bundle."""
        if self.channel is not None and data:
            self.channel.send_json(b"result", {"main": main, "data": data})

    def _showtraceback(self, etype, evalue, stb) -> None:
        # The formatted traceback is a list of blocks; clients get them joined without separators.
        lines = [stb] if isinstance(stb, str) else stb
        self._send_error(etype.__name__, str(evalue), "".join(lines))

    def report(self, error: BaseException) -> None:
        """Sends the error a cell ended with if IPython only printed it, as it does with groups and its own usage errors."""
        if not self.failed:
            lines = [] if isinstance(error, UsageError) else traceback.format_exception(type(error), error, error.__traceback__)
            self._send_error(type(error).__name__, str(error), "".join(lines))

    def _send_error(self, name: str, value: str, traceback: str) -> None:
        self.failed = True
        if self.channel is not None:
            self.channel.send_json(b"error", {"name": name, "value": value, "traceback": traceback})

    def set_directory(self, path: str) -> None:
        """Changes the directory if it exists; a missing one is no error (contract: interpreter, section 2)."""
        try:
            os.chdir(path)
        except OSError:
            pass
