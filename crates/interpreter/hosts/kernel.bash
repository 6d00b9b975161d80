# The Bash kernel host. It speaks the frames of `kernel::frame` on descriptor 0, which it moves out of the way of user code.
# Standard error joins standard output (contract: interpreter, section 7). Names begin with __kernel so as not to collide with
# the user's. An interrupt ends the shell; the next execution gets a new one.
exec {__kernel_link}<&0 {__kernel_output}>&1 </dev/null 2>&1
echo 500 2>/dev/null >/proc/self/oom_score_adj

__kernel_leave() {
  # Through the pipe, to come after what the shell has written there.
  echo 'Restarting Bash' >&"$__kernel_output"
  printf 'done 7\nleaving' >&"$__kernel_link"
}

printf 'hello %d\n%s' "${#BASHPID}" "$BASHPID" >&"$__kernel_link"
__kernel_count=0
while IFS=' ' read -r __kernel_kind __kernel_length <&"$__kernel_link"; do
  __kernel_payload=
  if ((__kernel_length > 0)); then
    LC_ALL=C IFS= read -r -N "$__kernel_length" __kernel_payload <&"$__kernel_link"
  fi
  case $__kernel_kind in
    execute)
      ((__kernel_count += 1))
      printf 'started %d\n%s' "${#__kernel_count}" "$__kernel_count" >&"$__kernel_link"
      trap __kernel_leave EXIT
      eval "$__kernel_payload"
      __kernel_status=$?
      trap - EXIT
      if ((__kernel_status)); then
        __kernel_payload='{"name":"","value":"'$__kernel_status'","traceback":""}'
        printf 'error %d\n%s' "${#__kernel_payload}" "$__kernel_payload" >&"$__kernel_link"
      fi
      printf 'done 0\n' >&"$__kernel_link"
      ;;
    env) export "$__kernel_payload" 2>/dev/null ;;
    unenv) unset -v "$__kernel_payload" 2>/dev/null ;;
    cwd) cd -- "$__kernel_payload" 2>/dev/null ;;
  esac
done
