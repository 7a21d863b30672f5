#!/usr/bin/env escript
%% Erlang's ssl: visits a port of 127.0.0.1 four times with TLS 1.2, and four times with TLS 1.3. In TLS 1.2 it
%% keeps the sessions of servers that it has verified, by identifier, and sends no session_ticket extension.

main([Port, Roots]) ->
    {ok, _} = application:ensure_all_started(ssl),
    TLS12 = [{versions, ['tlsv1.2']}],
    TLS13 = [{versions, ['tlsv1.3']}, {session_tickets, auto}],
    Saving = [{reuse_sessions, save} | TLS12],
    [visit(list_to_integer(Port), Roots, Options)
     || Options <- [Saving, TLS12, TLS12, TLS12, TLS13, TLS13, TLS13, TLS13]].

%% It looks for sessions under the name that it connects to.
visit(Port, Roots, Options) ->
    Trust = [{verify, verify_peer}, {cacertfile, Roots}],
    {ok, Socket} = ssl:connect("localhost", Port, [inet, {active, false} | Trust ++ Options]),
    {ok, Facts} = ssl:connection_information(Socket, [protocol, session_id]),
    io:format("~w~n", [Facts]),
    ok = ssl:send(Socket, "GET / HTTP/1.0\r\n\r\n"),
    read_to_end(Socket),
    ok = ssl:close(Socket).

read_to_end(Socket) ->
    case ssl:recv(Socket, 0) of
        {ok, _} -> read_to_end(Socket);
        {error, closed} -> ok
    end.
