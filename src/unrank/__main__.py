from unrank.cli.main import main

main()
