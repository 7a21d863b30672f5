# Clients that reconnect after their server has disappeared or hung.

# The server starts late, stops, and starts again.
check_reconnecting_client() {
    local port serve
    port=$(free_port)
    serve=(openssl s_server -accept "127.0.0.1:$port" -cert server.pem -key server.key)
    begin client "${trusting[@]}" stdbuf -oL "$programs/reconnecting-client" localhost "$port"
    expect client '^not connected: .*connectFailed.*; again in'
    begin first "${serve[@]}"
    expect client '^connected'
    say first hello
    expect client '^hello'
    stop first
    expect client '^the connection failed: .*truncated'
    expect client '^not connected: .*connectFailed.*; again in'
    begin second "${serve[@]}"
    expect client '^connected'
    say second 'hello again'
    expect client '^hello again'
    say second bye
    ended client 0
    stop second
    said no-port badParameter "$programs/reconnecting-client" localhost 0
}

check_json_frames() {
    local port
    port=$(free_port)
    begin server "$programs/json-frames" server "$port" 0.5
    expect server 'listening on port'
    begin client "$programs/json-frames" client "$port" 0.5
    expect client '^sum\(6\)'
    expect client '^pong'
    # The server is killed, and the client connects to the next server.
    kill -KILL "${pid[server]}"
    stop server
    expect client 'the next attempt is in'
    expect client 'connection failed: connectFailed'
    begin server "$programs/json-frames" server "$port" 0.5
    expect client '^sum\(6\)'
    # The server hangs, which only the heartbeat can detect.
    kill -STOP "${pid[server]}"
    expect client 'connection failed: readTimeout'
    kill -CONT "${pid[server]}"
    expect client '^sum\(6\)'
    # Send a frame with netcat too.
    begin other nc 127.0.0.1 "$port"
    printf '\0\0\0\x0b{"ping":{}}' >&"${in[other]}"
    timeout 30 head -c 15 <&"${out[other]}" | grep -qa '"pong"' || fail "the server did not answer a ping"
    stop other client server
}
