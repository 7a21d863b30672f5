import SockcatCommands

await Sockcat.start()
