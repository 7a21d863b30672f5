# sockcat in a terminal (tmux), and with pipes and files that cannot be written.

check_terminal() {
    port=$(free_port)
    start echo "$port" "$sockcat" listen --echo --tls --cert server.pem --key server-key.pem "localhost:$port"
    terminal "connect --tls --ca ca.pem localhost $port"
    types hello
    shows '^hello$' 2 # as typed, and as returned by the server
    ran typing
    "${tmux[@]}" resize-window -t world -x 40 -y 10
    types again
    shows '^again$' 2
    ran "resized window"
    "${tmux[@]}" send-keys -t world C-d
    shows 'exit 0$' 1
    ran Ctrl-D
    "${tmux[@]}" kill-server
    terminal "connect --tls --ca ca.pem localhost $port"
    types hello
    shows '^hello$' 2
    "${tmux[@]}" send-keys -t world C-c
    shows 'exit 130$' 1
    ran Ctrl-C
    "${tmux[@]}" kill-server
    terminal "connect --tls --insecure localhost $port"
    shows 'warning: --insecure' 1
    "${tmux[@]}" capture-pane -t world -p -e | grep -q $'\e\\[.*31m' || fail "the warning of --insecure is not red"
    ran "red warning"
    "${tmux[@]}" kill-server
    pipes
    stop echo
}

# terminal <arguments>: starts sockcat in a terminal, which then shows its exit status.
terminal() {
    # Each terminal has a server of its own, without the configuration of the user.
    terminals=$((terminals + 1))
    tmux=(tmux -f /dev/null -S "$scratch/tmux$terminals")
    "${tmux[@]}" new-session -d -s world -x 80 -y 24 -c "$scratch" \
        "trap : INT; $sockcat $1; echo \"exit \$?\"; exec cat"
}

terminals=0

types() {
    "${tmux[@]}" send-keys -t world "$1" Enter
}

# shows <pattern> <count>: waits until the terminal shows that many lines that match.
shows() {
    for _ in {1..100}; do
        [ "$("${tmux[@]}" capture-pane -t world -p | grep -cE -- "$1")" -lt "$2" ] || return 0
        sleep 0.1
    done
    "${tmux[@]}" capture-pane -t world -p >>"$scratch/log"
    fail "the terminal does not show: $1"
}

# Pipes on both sides, a closed pipe, and a full disk.
pipes() {
    local status=0 connect=("$sockcat" connect --tls --ca ca.pem localhost "$port")
    head -c 3000000 /dev/urandom >"$scratch/data"
    "${connect[@]}" <"$scratch/data" | cmp - "$scratch/data" || fail "the data differ"
    ran "pipes on both sides"
    { "${connect[@]}" <"$scratch/data" || echo $? >"$scratch/status"; } 2>"$scratch/errors" | head -c 10 >/dev/null
    [ "$(cat "$scratch/status")" = 141 ] || fail "a closed pipe: the exit status is not 141"
    [ ! -s "$scratch/errors" ] || fail "a closed pipe: $(cat "$scratch/errors")"
    ran "closed pipe"
    "${connect[@]}" <"$scratch/data" >/dev/full 2>"$scratch/errors" || status=$?
    [ "$status" -eq 7 ] || fail "a full disk: the exit status is $status"
    grep -q 'no space left' -i "$scratch/errors" || fail "a full disk: $(cat "$scratch/errors")"
    ran "full disk"
}
