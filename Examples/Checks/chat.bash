# Chat servers with members that use openssl and netcat.

check_chat_server() {
    local port
    begin chat "$programs/chat-server" 0
    expect chat 'listening on port ([0-9]+)'
    port=${BASH_REMATCH[1]}
    visit stranger "$port" -
    expect chat 'a connection failed: .*clientCertificateMissing'
    visit alice "$port" alice
    expect alice '^\*\*\* welcome, alice; 1 here'
    visit bob "$port" bob
    expect bob '^\*\*\* welcome, bob; 2 here'
    expect alice '^\*\*\* bob joined'
    say bob 'hello, alice'
    expect alice '^bob: hello, alice'
    # Flow control: this script does not read bob's output for now, so bob stops reading from the server.
    seq -f "%01000.0f" 24000 >&"${in[alice]}"
    expect chat 'bob is behind'
    timeout 30 grep -q -m1 'lines were omitted' <&"${out[bob]}" || fail "bob did not receive the count of omitted lines"
    expect chat 'bob has caught up'
    # A line that is too long closes the connection.
    say bob "$(printf 'x%.0s' {1..2000})"
    expect chat 'bob left: .*readMaxedOut'
    expect alice '^\*\*\* bob left'
    kill -TERM "${pid[chat]}"
    expect alice '^\*\*\* the server is shutting down'
    ended alice 0
    ended chat 0
    stop stranger bob
    begin impatient "$programs/chat-server" 0 0.5
    expect impatient 'listening on port ([0-9]+)'
    visit silent "${BASH_REMATCH[1]}" alice
    expect impatient 'alice left: .*readTimeout'
    stop silent impatient
}

check_task_chat_server() {
    local port tls_port
    begin chat "$programs/task-chat-server" 0 0
    expect chat 'listening on ports ([0-9]+) and ([0-9]+)'
    port=${BASH_REMATCH[1]} tls_port=${BASH_REMATCH[2]}
    begin alice nc 127.0.0.1 "$port"
    expect alice 'your name'
    say alice alice
    expect alice 'welcome, alice; 1 here'
    visit bob "$tls_port" -
    expect bob 'your name'
    say bob bob
    expect bob 'welcome, bob; 2 here'
    expect alice 'bob joined'
    begin other nc 127.0.0.1 "$port"
    say other alice
    expect other 'not this one'
    say bob 'hello, alice'
    expect alice '^bob: hello, alice'
    say alice 'hello, bob'
    expect bob '^alice: hello, bob'
    begin carol nc 127.0.0.1 "$port"
    say carol carol
    expect carol 'welcome, carol; 3 here'
    # A line that is too long closes the connection.
    say carol "$(printf 'x%.0s' {1..2000})"
    expect chat 'carol left: readMaxedOut'
    expect bob 'carol left'
    kill -TERM "${pid[chat]}"
    expect alice 'the server is shutting down'
    expect bob 'the server is shutting down'
    expect chat 'done'
    ended chat 0
    stop alice bob carol other
}
