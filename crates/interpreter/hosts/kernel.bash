# The Bash kernel host. It speaks the frames of `kernel::frame` on descriptor `__kernel_link`. Standard error joins standard output
# (contract: interpreter, section 7). Names begin with __kernel so as not to collide with the user's.
#
# This text is what an interactive shell runs before it prompts, which it never comes to: an interrupt ends the command that runs and
# all that is around it, but not an interactive shell, which then begins here again. So the variables and the directory stay.
__kernel_status=$?
# A child that was interrupted before it became its program begins here too, and ends as the program would have.
if [[ ${__kernel_pid-$BASHPID} != "$BASHPID" ]]; then exec sh -c 'kill -INT $$'; fi
__kernel_pid=$BASHPID
export -n PROMPT_COMMAND __kernel_link
__kernel_host=${__kernel_host-$PROMPT_COMMAND}
PS1=

__kernel_leave() {
  # Through the pipe, to come after what the shell has written there.
  echo 'Restarting Bash' >&"$__kernel_output"
  printf 'done 7\nleaving' >&"$__kernel_link"
}

# Reports the end of a cell by its exit status, once. An interactive shell without job control does not say that a program was killed.
__kernel_end() {
  trap - EXIT
  # The end is reported as a whole. An interrupt that comes now is of the cell that has ended.
  trap '' INT
  if (($1 > 128 && $1 != 130 && $1 <= 192)); then
    echo "killed by SIG$(kill -l "$(($1 - 128))" 2>/dev/null)" >&"$__kernel_output"
  fi
  if (($1)); then
    local error='{"name":"","value":"'$1'","traceback":""}'
    printf 'error %d\n%s' "${#error}" "$error" >&"$__kernel_link"
  fi
  __kernel_running=
  printf 'done 0\n' >&"$__kernel_link"
  trap - INT
}

if [[ ! ${__kernel_count-} ]]; then
  exec {__kernel_output}>&1 2>&1
  echo 500 2>/dev/null >/proc/self/oom_score_adj
  set +H +o history
  unset -v HISTFILE MAILCHECK
  __kernel_count=0 __kernel_running=
  printf 'hello %d\n%s' "${#BASHPID}" "$BASHPID" >&"$__kernel_link"
elif [[ $__kernel_running ]]; then
  __kernel_end "$__kernel_status"
fi

while :; do
  # After a cell that says `continue`.
  if [[ $__kernel_running ]]; then __kernel_end "$?"; fi
  IFS=' ' read -r __kernel_kind __kernel_length <&"$__kernel_link" || exit
  __kernel_payload=
  if ((__kernel_length > 0)); then
    LC_ALL=C IFS= read -r -N "$__kernel_length" __kernel_payload <&"$__kernel_link"
  fi
  case $__kernel_kind in
    execute)
      ((__kernel_count += 1))
      __kernel_running=yes
      # What clients set by this name is for programs, and not for this shell.
      PROMPT_COMMAND=$__kernel_host
      export -n PROMPT_COMMAND
      printf 'started %d\n%s' "${#__kernel_count}" "$__kernel_count" >&"$__kernel_link"
      trap __kernel_leave EXIT
      eval "$__kernel_payload"
      __kernel_end "$?"
      ;;
    env) export "$__kernel_payload" 2>/dev/null ;;
    unenv) unset -v "$__kernel_payload" 2>/dev/null ;;
    cwd) cd -- "$__kernel_payload" 2>/dev/null ;;
  esac
done
# A cell has said `break`, which ended the loop: begin it again.
eval "$__kernel_host"
